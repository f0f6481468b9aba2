/* A library to be preloaded into a program: its n-th allocation fails, in one of its processes.  It stands between malloc()
 * and glibc's allocator, where llmrun's own malloc() (runtime/allocations.c) calls it, too.
 *
 *   MEMORY_AT      n, from 1; 0: none
 *   MEMORY_RANK    the process: 0 is the first, N the N-th that it forks
 *   MEMORY_MARK    a file that is made when the allocation fails
 *   MEMORY_COUNT   a file that gets the number of allocations when the first process ends
 *
 * Only calls from the program itself count, and not those that libraries make for themselves; of llmrun, whose malloc() the
 * libraries call, all of them. */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);

static struct {
    uintptr_t from, to; /* the program's code */
    long at, rank, forks, process;
    _Atomic long count;
    bool known;
} g;

static int find_program(struct dl_phdr_info *info, size_t size, void *context)
{
    (void)size;
    (void)context;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X) {
            g.from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            g.to = g.from + info->dlpi_phdr[i].p_memsz;
        }
    return 1; /* the program comes first */
}

static void before_fork(void)
{
    g.forks++;
}

static void in_child(void)
{
    g.process = g.forks;
    atomic_store(&g.count, 0);
}

static long number(const char *name)
{
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

__attribute__((constructor)) static void begin(void)
{
    g.at = number("MEMORY_AT");
    g.rank = number("MEMORY_RANK");
    pthread_atfork(before_fork, NULL, in_child);
    dl_iterate_phdr(find_program, NULL);
    g.known = true;
}

__attribute__((destructor)) static void end(void)
{
    char text[32];
    const char *path = getenv("MEMORY_COUNT");
    int fd = path && g.process == 0 ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
    if (fd >= 0 && write(fd, text, (size_t)snprintf(text, sizeof text, "%ld\n", atomic_load(&g.count))) > 0)
        close(fd);
}

static bool fails(const void *caller)
{
    uintptr_t at = (uintptr_t)caller;
    if (!g.known || at < g.from || at >= g.to || g.process != g.rank || atomic_fetch_add(&g.count, 1) + 1 != g.at)
        return false;
    const char *mark = getenv("MEMORY_MARK");
    int fd = mark ? open(mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (fd >= 0)
        close(fd);
    errno = ENOMEM;
    return true;
}

/* the same name in the library behind this one */
#define BEHIND(TYPE, NAME)                                                                                             \
    static TYPE *behind;                                                                                               \
    if (!behind)                                                                                                       \
        *(void **)&behind = dlsym(RTLD_NEXT, NAME)

typedef void *of_bytes(size_t bytes);
typedef void *of_items(size_t n, size_t bytes);
typedef void *of_old(void *old, size_t bytes);

void *__libc_malloc(size_t bytes)
{
    BEHIND(of_bytes, "__libc_malloc");
    return fails(__builtin_return_address(0)) ? NULL : behind(bytes);
}

void *__libc_calloc(size_t n, size_t bytes)
{
    BEHIND(of_items, "__libc_calloc");
    return fails(__builtin_return_address(0)) ? NULL : behind(n, bytes);
}

void *__libc_realloc(void *old, size_t bytes)
{
    BEHIND(of_old, "__libc_realloc");
    return fails(__builtin_return_address(0)) ? NULL : behind(old, bytes);
}

/* llmc calls these, and llmrun's stand before them */
void *malloc(size_t bytes)
{
    BEHIND(of_bytes, "malloc");
    return fails(__builtin_return_address(0)) ? NULL : behind(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    BEHIND(of_items, "__libc_calloc");
    return fails(__builtin_return_address(0)) ? NULL : behind(n, bytes);
}

void *realloc(void *old, size_t bytes)
{
    BEHIND(of_old, "realloc");
    return fails(__builtin_return_address(0)) ? NULL : behind(old, bytes);
}
