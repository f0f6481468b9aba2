/* Counts allocations by standing in front of glibc's allocator, so that "nothing is allocated after the first
 * step" is a measured figure.  malloc() has no argument that could carry the counter: it is the one piece of
 * mutable file-scope data of the runtime. */

#include "runtime/allocations.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

static _Atomic uint64_t calls;

uint64_t allocations_count(void)
{
    return atomic_load_explicit(&calls, memory_order_relaxed);
}

#ifndef SANITIZED

/* glibc's own names of its allocator */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void *memalign(size_t alignment, size_t bytes);

static void count(void)
{
    atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
}

void *malloc(size_t bytes)
{
    count();
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    count();
    return __libc_calloc(n, bytes);
}

void *realloc(void *old, size_t bytes)
{
    count();
    return __libc_realloc(old, bytes);
}

void *memalign(size_t alignment, size_t bytes)
{
    count();
    return __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    *out = memalign(alignment, bytes);
    return *out ? 0 : ENOMEM;
}

#endif
