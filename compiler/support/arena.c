/* Arena: a list of blocks, the newest first.  Blocks grow geometrically up to BLOCK_MAX, so the number of
 * calls to malloc is logarithmic in the bytes handed out; a larger request gets a block of its own. */

#include "compiler/support/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Under the address sanitizer what an arena has not handed out is out of bounds, and so are some bytes behind every
 * allocation and all that arena_reset() took back. */
#ifdef __has_feature
#define HAS_ASAN __has_feature(address_sanitizer)
#elif defined __SANITIZE_ADDRESS__
#define HAS_ASAN 1
#else
#define HAS_ASAN 0
#endif
#if HAS_ASAN
#include <sanitizer/asan_interface.h>
#define FENCE ((size_t)16)
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at))
#define FENCE ((size_t)0)
#endif

#define BLOCK_MIN ((size_t)1 << 16)
#define BLOCK_MAX ((size_t)1 << 24)
#define ALIGNMENT ((size_t)16)

struct block {
    struct block *older;
    size_t size, used;
    _Alignas(16) unsigned char data[];
};

struct arena {
    struct block *newest;
    size_t next_size;
};

void arena_exhausted(size_t bytes)
{
    fprintf(stderr, "llmc: out of memory (%zu bytes wanted)\n", bytes);
    exit(4);
}

static void *checked_malloc(size_t bytes)
{
    void *p = malloc(bytes);
    if (!p)
        arena_exhausted(bytes);
    return p;
}

static void push_block(struct arena *a, size_t least)
{
    size_t size = least > a->next_size ? least : a->next_size;
    struct block *b = checked_malloc(sizeof *b + size);
    b->older = a->newest;
    b->size = size;
    b->used = 0;
    ASAN_POISON_MEMORY_REGION(b->data, size);
    a->newest = b;
    if (a->next_size < BLOCK_MAX)
        a->next_size *= 2;
}

struct arena *arena_new(void)
{
    struct arena *a = checked_malloc(sizeof *a);
    a->newest = NULL;
    a->next_size = BLOCK_MIN;
    push_block(a, BLOCK_MIN);
    return a;
}

void arena_free(struct arena *a)
{
    if (!a)
        return;
    for (struct block *b = a->newest, *older; b; b = older) {
        older = b->older;
        free(b);
    }
    free(a);
}

/* bytes that an allocation takes of its block */
static size_t taken(size_t bytes)
{
    return ((bytes + ALIGNMENT - 1) & ~(ALIGNMENT - 1)) + FENCE;
}

/* not zeroed; ahead: a block of its own has that many more */
static void *take(struct arena *a, size_t bytes, size_t ahead)
{
    size_t need = taken(bytes);
    if (a->newest->size - a->newest->used < need)
        push_block(a, need + ahead);
    void *p = a->newest->data + a->newest->used;
    a->newest->used += need;
    ASAN_UNPOISON_MEMORY_REGION(p, bytes);
    return p;
}

void *arena_alloc(struct arena *a, size_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        arena_exhausted(bytes);
    return memset(take(a, bytes, 0), 0, bytes);
}

static void check_product(size_t count, size_t size)
{
    if (size && count > SIZE_MAX / 4 / size) {
        fprintf(stderr, "llmc: out of memory (%zu items of %zu bytes wanted)\n", count, size);
        exit(4);
    }
}

void *arena_array(struct arena *a, size_t count, size_t size)
{
    check_product(count, size);
    return arena_alloc(a, count * size);
}

/* Pages that nobody has written cost nothing, so a block for an array that outgrew the last one has room for it to grow
 * on. */
void *arena_grow(struct arena *a, void *old, size_t had, size_t count, size_t size)
{
    check_product(count, size);
    struct block *b = a->newest;
    size_t held = taken(had * size), need = taken(count * size);
    if (had && (unsigned char *)old + held == b->data + b->used && b->size - b->used >= need - held) {
        b->used += need - held;
        ASAN_UNPOISON_MEMORY_REGION(old, count * size);
        return old;
    }
    void *grown = take(a, count * size, need);
    if (had)
        memcpy(grown, old, had * size);
    return grown;
}

char *arena_strndup(struct arena *a, const char *s, size_t length)
{
    char *copy = arena_alloc(a, length + 1);
    memcpy(copy, s, length);
    return copy;
}

char *arena_strdup(struct arena *a, const char *s)
{
    return arena_strndup(a, s, strlen(s));
}

char *arena_vprintf(struct arena *a, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    size_t length = n < 0 ? 0 : (size_t)n;
    char *s = arena_alloc(a, length + 1);
    vsnprintf(s, length + 1, fmt, ap);
    return s;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *s = arena_vprintf(a, fmt, ap);
    va_end(ap);
    return s;
}

struct arena_mark arena_mark(const struct arena *a)
{
    return (struct arena_mark){a->newest, a->newest->used};
}

void arena_reset(struct arena *a, struct arena_mark mark)
{
    while (a->newest != mark.block) {
        struct block *older = a->newest->older;
        free(a->newest);
        a->newest = older;
    }
    a->newest->used = mark.used;
    ASAN_POISON_MEMORY_REGION(a->newest->data + mark.used, a->newest->size - mark.used);
}

size_t arena_bytes(const struct arena *a)
{
    size_t sum = 0;
    for (const struct block *b = a->newest; b; b = b->older)
        sum += b->used;
    return sum;
}
