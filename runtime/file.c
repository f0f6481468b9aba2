/* See file.h.  What has a name is looked at by stat() before it is opened and by fstat() after, so that
 * neither a FIFO that stands there nor one that comes between makes anybody wait.
 *
 * Temporary files are named TARGET.tmp-PID and made with O_EXCL.  Names in /proc and /dev/fd stand for
 * descriptors that are open already: what they lead to is written in place, for it may have no name of its
 * own any more. */

#include "runtime/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_LINKS = 40, LOOK_MS = 50 };

static const char *not_file(mode_t mode)
{
    errno = 0;
    return S_ISREG(mode)    ? NULL
           : S_ISDIR(mode)  ? "it is a folder, not a file"
           : S_ISFIFO(mode) ? "it is a FIFO, not a file"
           : S_ISSOCK(mode) ? "it is a socket, not a file"
                            : "it is a device, not a file";
}

/* the descriptor is closed unless it is a regular file's */
static const char *open_regular(const char *path, int *fd, struct stat *about)
{
    *fd = -1;
    if (stat(path, about))
        return strerror(errno);
    const char *why = not_file(about->st_mode);
    if (why)
        return why;
    *fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (*fd < 0)
        return strerror(errno);
    if (fstat(*fd, about))
        why = strerror(errno);
    else
        why = not_file(about->st_mode);
    if (why) {
        close(*fd);
        *fd = -1;
    }
    return why;
}

const char *file_open(const char *path, int *fd, uint64_t *bytes)
{
    struct stat about;
    const char *why = open_regular(path, fd, &about);
    if (!why && bytes)
        *bytes = (uint64_t)about.st_size;
    return why;
}

const char *file_read(const char *path, FILE **in)
{
    int fd;
    *in = NULL;
    const char *why = file_open(path, &fd, NULL);
    if (why)
        return why;
    *in = fdopen(fd, "rb");
    if (*in)
        return NULL;
    why = strerror(errno);
    close(fd);
    return why;
}

/* Does somebody write into a FIFO that was opened without waiting, or has somebody since?  What has come already
 * stays in the stream. */
static bool is_written(FILE *in)
{
    struct pollfd p = {.fd = fileno(in), .events = POLLIN};
    for (int ms = 0; ms < FILE_WAIT_MS; ms += LOOK_MS) {
        errno = 0;
        int c = getc(in);
        bool waits = c == EOF && errno == EAGAIN; /* without a writer it would have ended */
        clearerr(in);
        if (c != EOF)
            return ungetc(c, in) == c;
        if (waits || (poll(&p, 1, LOOK_MS) > 0 && p.revents))
            return true;
    }
    return false;
}

static const char *set_waiting(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) ? strerror(errno) : NULL;
}

static const char *read_fifo(const char *path, FILE **in)
{
    struct stat about;
    const char *why = NULL;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return strerror(errno);
    if (fstat(fd, &about) || !S_ISFIFO(about.st_mode)) {
        close(fd);
        return "it changed while it was opened";
    }
    *in = fdopen(fd, "rb");
    if (!*in) {
        why = strerror(errno);
        close(fd);
        return why;
    }
    why = is_written(*in) ? set_waiting(fd) : "it is a FIFO that nobody writes into";
    if (why) {
        fclose(*in);
        *in = NULL;
    }
    return why;
}

const char *file_read_stream(const char *path, FILE **in)
{
    struct stat about;
    bool standard = !strcmp(path, "-");
    *in = NULL;
    if (standard ? fstat(STDIN_FILENO, &about) : stat(path, &about))
        return strerror(errno);
    if (S_ISFIFO(about.st_mode) && !standard)
        return read_fifo(path, in);
    if (!standard || S_ISDIR(about.st_mode))
        return standard ? not_file(about.st_mode) : file_read(path, in);
    *in = stdin;
    return NULL;
}

/* ---- writing ---- */

/* does the path name a descriptor that is open already? */
static bool is_descriptor(const char *path)
{
    return !strncmp(path, "/proc/", 6) || !strncmp(path, "/dev/fd/", 8);
}

/* descriptor: the way leads over one */
static const char *follow(const char *path, char target[FILE_PATH], bool *descriptor)
{
    char link[FILE_PATH];
    *descriptor = false;
    if (strlen(path) >= FILE_PATH)
        return strerror(ENAMETOOLONG);
    memcpy(target, path, strlen(path) + 1);
    for (int links = 0; links < MOST_LINKS; links++) {
        *descriptor |= is_descriptor(target);
        for (size_t n = strlen(target); n > 1 && target[n - 1] == '/'; n--)
            target[n - 1] = 0;
        ssize_t n = readlink(target, link, sizeof link - 1);
        if (n < 0)
            return NULL; /* no link, nothing there, or out of reach: opening it will tell */
        link[n] = 0;
        char *slash = *link == '/' ? NULL : strrchr(target, '/'), *end = slash ? slash + 1 : target;
        if ((size_t)(end - target) + (size_t)n >= FILE_PATH)
            return strerror(ENAMETOOLONG);
        memcpy(end, link, (size_t)n + 1);
    }
    return strerror(ELOOP);
}

const char *file_resolve(const char *path, char target[FILE_PATH])
{
    bool descriptor;
    return follow(path, target, &descriptor);
}

/* Looks at what stands where something is to be written.  NULL if it can be: *through says that it is a device or
 * FIFO, which is written through. */
static const char *look(const char *path, bool *through, mode_t *mode)
{
    struct stat about;
    *through = false;
    *mode = 0;
    size_t n = strlen(path);
    if (stat(path, &about))
        return errno != ENOENT ? strerror(errno) : n && path[n - 1] == '/' ? not_file(S_IFDIR) : NULL;
    *mode = about.st_mode;
    *through = S_ISCHR(about.st_mode) || S_ISBLK(about.st_mode) || S_ISFIFO(about.st_mode);
    return *through ? NULL : not_file(about.st_mode);
}

/* Opens in place what stands there and has this mode (0: nothing does).  A FIFO that nobody reads gets FILE_WAIT_MS
 * to find a reader. */
static const char *open_in_place(const char *path, mode_t mode, FILE **out)
{
    int fd = -1;
    for (int ms = 0; fd < 0 && ms <= FILE_WAIT_MS; ms += LOOK_MS) {
        fd = open(path, O_WRONLY | O_TRUNC | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | (mode ? 0 : O_CREAT), 0666);
        if (fd < 0 && (errno != ENXIO || !S_ISFIFO(mode)))
            return strerror(errno);
        if (fd < 0)
            poll(NULL, 0, LOOK_MS);
    }
    if (fd < 0)
        return "it is a FIFO that nobody reads";
    const char *why = set_waiting(fd);
    *out = why ? NULL : fdopen(fd, "wb");
    if (*out)
        return NULL;
    why = why ? why : strerror(errno);
    close(fd);
    return why;
}

const char *file_append(const char *path, FILE **out)
{
    bool through;
    mode_t mode;
    *out = NULL;
    if (!strcmp(path, "-")) {
        int fd = dup(STDOUT_FILENO);
        *out = fd < 0 ? NULL : fdopen(fd, "wb");
        return *out ? NULL : strerror(errno);
    }
    const char *why = look(path, &through, &mode);
    return why ? why : open_in_place(path, mode, out);
}

const char *file_create(const char *path, struct file_out *out)
{
    bool through, descriptor;
    mode_t mode;
    *out = (struct file_out){.stream = NULL};
    if (!strcmp(path, "-")) {
        out->stream = stdout;
        return NULL;
    }
    const char *why = look(path, &through, &mode);
    if (!why)
        why = follow(path, out->target, &descriptor);
    if (why)
        return why;
    if (through || descriptor)
        return open_in_place(path, mode, &out->stream);
    snprintf(out->temporary, sizeof out->temporary, "%s.tmp-%ld", out->target, (long)getpid());
    int fd = open(out->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return strerror(errno);
    if (mode)
        (void)fchmod(fd, mode & 0777); /* whoever might read the old file may read the new one */
    out->stream = fdopen(fd, "wb");
    out->replaces = true;
    if (out->stream)
        return NULL;
    why = strerror(errno);
    close(fd);
    unlink(out->temporary);
    return why;
}

const char *file_publish(struct file_out *out)
{
    FILE *f = out->stream;
    bool bad = ferror(f);
    int cause = errno;
    out->stream = NULL;
    if (!bad && (fflush(f) || (out->replaces && fsync(fileno(f))))) {
        bad = true;
        cause = errno;
    }
    if (f != stdout && fclose(f) && !bad) {
        bad = true;
        cause = errno;
    }
    if (out->replaces && !bad && rename(out->temporary, out->target)) {
        bad = true;
        cause = errno;
    }
    if (!bad)
        return NULL;
    if (out->replaces)
        unlink(out->temporary);
    return strerror(cause ? cause : EIO);
}

void file_discard(struct file_out *out)
{
    if (out->stream && out->stream != stdout)
        fclose(out->stream);
    if (out->replaces)
        unlink(out->temporary);
    out->stream = NULL;
}

/* Can a file be made in the folder that this path lies in?  The path is cut off behind that folder. */
static const char *takes_files(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash)
        slash[slash == path] = 0;
    return access(slash ? path : ".", W_OK | X_OK) ? strerror(errno) : NULL;
}

/* the same of the folder in which the path ends when links are followed */
static const char *folder_takes(const char *path)
{
    char folder[FILE_PATH];
    bool descriptor;
    const char *why = follow(path, folder, &descriptor);
    if (why || descriptor)
        return why;
    return takes_files(folder);
}

const char *file_lock(const char *path, FILE **out, bool *taken)
{
    const char *why = file_not_file(path);
    *taken = false;
    *out = why ? NULL : fopen(path, "ae");
    if (!*out)
        return why ? why : strerror(errno);
    if (!flock(fileno(*out), LOCK_EX | LOCK_NB))
        return NULL;
    *taken = errno == EWOULDBLOCK;
    if (!*taken)
        return strerror(errno);
    fclose(*out);
    *out = NULL;
    return NULL;
}

const char *file_continue(const char *path, uint64_t at, FILE **out)
{
    const char *why = file_not_file(path);
    *out = why ? NULL : fopen(path, "r+e");
    if (!*out)
        return why ? why : strerror(errno);
    if (ftruncate(fileno(*out), (off_t)at) == 0 && fseeko(*out, (off_t)at, SEEK_SET) == 0)
        return NULL;
    why = strerror(errno);
    fclose(*out);
    *out = NULL;
    return why;
}

const char *file_may_write(const char *path)
{
    bool through;
    mode_t mode;
    const char *why = look(path, &through, &mode);
    return why || through ? why : folder_takes(path);
}

const char *file_not_file(const char *path)
{
    struct stat about;
    return stat(path, &about) ? NULL : not_file(about.st_mode);
}

const char *file_may_replace(const char *path)
{
    char folder[FILE_PATH];
    const char *why = file_not_file(path);
    if (why || strlen(path) >= sizeof folder)
        return why ? why : strerror(ENAMETOOLONG);
    memcpy(folder, path, strlen(path) + 1);
    return takes_files(folder);
}

const char *file_not_folder(const char *path)
{
    struct stat about;
    errno = 0;
    if (stat(path, &about))
        return errno == ENOENT ? NULL : strerror(errno);
    errno = 0;
    return S_ISDIR(about.st_mode)    ? NULL
           : S_ISREG(about.st_mode)  ? "it is a file, not a folder"
           : S_ISFIFO(about.st_mode) ? "it is a FIFO, not a folder"
           : S_ISSOCK(about.st_mode) ? "it is a socket, not a folder"
                                     : "it is a device, not a folder";
}

const char *file_move(const char *from, const char *to)
{
    return rename(from, to) ? strerror(errno) : NULL;
}

const char *file_flush_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const char *why = fd < 0 || fsync(fd) ? strerror(errno) : NULL;
    if (fd >= 0)
        close(fd);
    return why;
}

const char *file_make_folder(const char *path)
{
    char parent[FILE_PATH];
    if (strlen(path) >= sizeof parent)
        return strerror(ENAMETOOLONG);
    if (mkdir(path, 0777))
        return errno == EEXIST ? file_not_folder(path) : strerror(errno);
    memcpy(parent, path, strlen(path) + 1);
    size_t n = strlen(parent);
    while (n > 1 && parent[n - 1] == '/')
        n--;
    while (n && parent[n - 1] != '/')
        n--;
    parent[n] = 0;
    return file_flush_folder(n ? parent : ".");
}

static const char *remove_below(int parent, const char *name, int depth)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    const char *why = d ? NULL : strerror(errno);
    for (const struct dirent *e; !why && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || !unlinkat(fd, e->d_name, 0))
            continue;
        why = errno == EISDIR && depth > 0 ? remove_below(fd, e->d_name, depth - 1) : strerror(errno);
    }
    if (d)
        closedir(d);
    else if (fd >= 0)
        close(fd);
    return why ? why : unlinkat(parent, name, AT_REMOVEDIR) != 0 ? strerror(errno) : NULL;
}

const char *file_remove_folder(const char *path)
{
    struct stat about;
    if (lstat(path, &about))
        return errno == ENOENT ? NULL : strerror(errno);
    if (!S_ISDIR(about.st_mode))
        return unlink(path) ? strerror(errno) : NULL;
    return remove_below(AT_FDCWD, path, 1);
}

void file_guard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            open("/dev/null", fd ? O_RDONLY : O_WRONLY); /* reading or writing fails, as it would have */
}

const char *file_flush_stdout(void)
{
    bool before = ferror(stdout);
    if (fflush(stdout))
        return strerror(errno);
    return before ? "not everything could be written" : NULL;
}

void file_beside_program(const char *name, char *path, size_t size)
{
    char self[3000];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n < 0 ? 0 : n] = 0;
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = 0;
    snprintf(path, size, "%s/%s", slash ? self : ".", name);
}
