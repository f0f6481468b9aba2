/* A library to be preloaded into a program: at the n-th call by which one of its processes changes what is below a
 * folder, the process is killed, or the call fails.
 *
 *   FAULTS_BELOW   what the paths concerned contain
 *   FAULTS_RANK    the process: 0 is the first, N the N-th that it forks
 *   FAULTS_AT      n, from 1; 0: no fault
 *   FAULTS_KIND    0: SIGKILL before the call; else the errno that it fails with.  Which calls are counted depends on it:
 *                  a full disk fails what takes space, EMFILE what opens a file, EIO all that reaches the disk
 *   FAULTS_ON      1: and all such calls after it
 *   FAULTS_DELAY   milliseconds that every such call takes longer: those that reach the disk, of all processes
 *   FAULTS_MARK    a file that is made when the fault occurs
 *   FAULTS_LIST    a file to which every process appends one line for every change that it has made
 *
 * The C library's own calls do not come by here, so that a stream counts where it is flushed.  Everything is passed on
 * as a system call. */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum need { SPACE = 1, OPENS = 2, CHANGES = 4, DISK = 8, MEMORY = 16, UNMAPS = 32 }; /* what a call is, as a set */
enum { PATH = 2048, MAPS = 64 };

static struct {
    const char *below, *mark, *list;
    long rank, at, on, delay;
    int kind;
    long forks, process;
    _Atomic long count;
    _Atomic(void *) map[MAPS];
} g;

static void before_fork(void)
{
    g.forks++;
}

static void in_child(void)
{
    g.process = g.forks;
}

static long number(const char *name)
{
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

__attribute__((constructor)) static void begin(void)
{
    g.below = getenv("FAULTS_BELOW");
    g.mark = getenv("FAULTS_MARK");
    g.list = getenv("FAULTS_LIST");
    g.rank = number("FAULTS_RANK");
    g.at = number("FAULTS_AT");
    g.on = number("FAULTS_ON");
    g.delay = number("FAULTS_DELAY");
    g.kind = (int)number("FAULTS_KIND");
    pthread_atfork(before_fork, NULL, in_child);
}

/* ---- which file ---- */

static void path_of(int fd, char *out)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long n = syscall(SYS_readlinkat, AT_FDCWD, link, out, PATH - 1);
    out[n > 0 ? n : 0] = 0;
}

static void path_at(int folder, const char *path, char *out)
{
    if (*path == '/' || folder == AT_FDCWD) {
        snprintf(out, PATH, "%s", path);
        return;
    }
    path_of(folder, out);
    size_t n = strlen(out);
    snprintf(out + n, PATH - n, "/%s", path);
}

static bool is_below(const char *path)
{
    return g.below && strstr(path, g.below) != NULL;
}

/* ---- faults ---- */

static int needs(int kind)
{
    switch (kind) {
    case 0:
        return CHANGES | UNMAPS;
    case ENOSPC:
    case EDQUOT:
        return SPACE;
    case EMFILE:
        return OPENS;
    case ENOMEM:
        return MEMORY;
    case EIO:
        return DISK;
    default: /* EROFS, EACCES */
        return CHANGES;
    }
}

/* Does the call, on what has this path, fail?  errno then says how. */
static bool fails(const char *path, int is)
{
    int before = errno;
    if (g.delay && is_below(path) && (is & DISK))
        nanosleep(&(struct timespec){g.delay / 1000, g.delay % 1000 * 1000000}, NULL);
    if (g.process != g.rank || !g.at || !is_below(path) || !(needs(g.kind) & is))
        return false;
    long n = atomic_fetch_add(&g.count, 1) + 1;
    if (n < g.at || (n > g.at && !g.on))
        return false;
    if (n == g.at && g.mark) {
        int fd = (int)syscall(SYS_openat, AT_FDCWD, g.mark, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
        syscall(SYS_close, fd);
        errno = before;
    }
    if (!g.kind) {
        syscall(SYS_kill, getpid(), SIGKILL);
        pause();
    }
    errno = g.kind;
    return true;
}

/* ---- list ---- */

static void list(const char *what, const char *path, const char *to)
{
    char line[3 * PATH];
    int before = errno;
    if (!g.list || !is_below(path))
        return;
    int n = snprintf(line, sizeof line, "%ld %s %s %s\n", g.process, what, path, to);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, g.list, O_CREAT | O_APPEND | O_WRONLY | O_CLOEXEC, 0666);
    if (syscall(SYS_write, fd, line, (size_t)n) != n)
        abort();
    syscall(SYS_close, fd);
    errno = before;
}

static int done(long result, const char *what, const char *path, const char *to)
{
    if (result >= 0)
        list(what, path, to);
    return (int)result;
}

/* ---- the calls ---- */

static int open_one(int folder, const char *name, int flags, int mode)
{
    char path[PATH];
    bool makes = (flags & (O_CREAT | O_TRUNC)) != 0;
    path_at(folder, name, path);
    if (fails(path, OPENS | DISK | (makes ? CHANGES | SPACE : 0)))
        return -1;
    long fd = syscall(SYS_openat, folder, name, flags, mode);
    return makes ? done(fd, "create", path, "") : (int)fd;
}

static int mode_in(int flags, va_list *ap)
{
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(*ap, int) : 0;
}

int open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    int mode = mode_in(flags, &ap);
    va_end(ap);
    return open_one(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    int mode = mode_in(flags, &ap);
    va_end(ap);
    return open_one(folder, path, flags, mode);
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    char path[PATH];
    path_of(fd, path);
    return fails(path, SPACE | CHANGES | DISK) ? -1 : (ssize_t)syscall(SYS_write, fd, bytes, n);
}

ssize_t read(int fd, void *bytes, size_t n)
{
    char path[PATH];
    path_of(fd, path);
    return fails(path, DISK) ? -1 : (ssize_t)syscall(SYS_read, fd, bytes, n);
}

/* what a stream holds is written here, or fails to be */
int fflush(FILE *f)
{
    char path[PATH] = "";
    if (f && fileno(f) >= 0)
        path_of(fileno(f), path);
    if (*path && fails(path, SPACE | CHANGES | DISK))
        return EOF;
    return done(fflush_unlocked(f), "write", path, "");
}

int posix_fallocate(int fd, off_t at, off_t n)
{
    char path[PATH];
    path_of(fd, path);
    if (fails(path, SPACE | CHANGES | DISK))
        return errno;
    return syscall(SYS_fallocate, fd, 0, at, n) ? errno : done(0, "write", path, "");
}

int fsync(int fd)
{
    char path[PATH];
    path_of(fd, path);
    return fails(path, SPACE | CHANGES | DISK) ? -1 : done(syscall(SYS_fsync, fd), "fsync", path, "");
}

int rename(const char *from, const char *to)
{
    if (fails(from, SPACE | CHANGES | DISK))
        return -1;
    return done(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0), "rename", from, to);
}

int mkdir(const char *path, mode_t mode)
{
    return fails(path, SPACE | CHANGES | DISK) ? -1 : done(syscall(SYS_mkdirat, AT_FDCWD, path, mode), "mkdir", path, "");
}

int unlinkat(int folder, const char *name, int flags)
{
    char path[PATH];
    path_at(folder, name, path);
    if (fails(path, CHANGES | DISK))
        return -1;
    return done(syscall(SYS_unlinkat, folder, name, flags), flags & AT_REMOVEDIR ? "rmdir" : "unlink", path, "");
}

int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path)
{
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

void *mmap(void *address, size_t n, int protection, int flags, int fd, off_t at)
{
    char path[PATH];
    bool shared = fd >= 0 && (flags & MAP_SHARED) && (protection & PROT_WRITE);
    if (shared) {
        path_of(fd, path);
        if (fails(path, MEMORY | CHANGES))
            return MAP_FAILED;
    }
    void *map = (void *)syscall(SYS_mmap, address, n, protection, flags, fd, at);
    for (int i = 0; shared && map != MAP_FAILED && is_below(path) && i < MAPS; i++) {
        void *none = NULL;
        if (atomic_compare_exchange_strong(&g.map[i], &none, map))
            break;
    }
    return map;
}

int munmap(void *map, size_t n)
{
    for (int i = 0; i < MAPS; i++) {
        void *known = map;
        if (map && atomic_compare_exchange_strong(&g.map[i], &known, NULL))
            fails(g.below, UNMAPS);
    }
    return (int)syscall(SYS_munmap, map, n);
}
