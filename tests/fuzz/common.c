/* See common.h. */

#include "tests/fuzz/common.h"
#include "runtime/file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

void require(bool fine)
{
    if (!fine)
        abort();
}

struct arena *empty_arena(void)
{
    static struct arena *a;
    static struct arena_mark empty;
    if (!a) {
        a = arena_new();
        empty = arena_mark(a);
    }
    arena_reset(a, empty);
    return a;
}

FILE *nowhere(void)
{
    static FILE *f;
    static char buffer[1 << 16];
    if (!f)
        require((f = fopen("/dev/null", "w")) && !setvbuf(f, buffer, _IOFBF, sizeof buffer));
    return f;
}

static char folder[64];

static void remove_fuzz_folder(void)
{
    file_remove_folder(folder);
}

const char *fuzz_folder(void)
{
    if (!*folder) {
        snprintf(folder, sizeof folder, "/dev/shm/llmc-fuzz-%d", (int)getpid());
        require(!mkdir(folder, 0700) && !atexit(remove_fuzz_folder));
    }
    return folder;
}

int fuzz_file(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    require(fd >= 0);
    return fd;
}

void fuzz_put(int fd, const void *bytes, size_t n)
{
    struct stat is;
    require(pwrite(fd, bytes, n, 0) == (ssize_t)n && !fstat(fd, &is));
    require(is.st_size == (off_t)n || !ftruncate(fd, (off_t)n));
}
