#ifndef LLMC_ARENA_H
#define LLMC_ARENA_H

/* Bump allocator: one per compilation, freed whole.  Everything that the compiler makes lives in one.
 *
 * Memory comes zeroed and aligned to 16 bytes.  A returned pointer lives until arena_free() or until
 * arena_reset() to an older mark.  Running out of memory ends the process with exit code 4 and one line. */

#include <stdarg.h>
#include <stddef.h>

struct arena;
struct arena_mark {
    void *block;
    size_t used;
};

/* Ends the process with exit code 4, for whoever else takes memory and gets none. */
_Noreturn void arena_exhausted(size_t bytes);
struct arena *arena_new(void);
void arena_free(struct arena *a);

void *arena_alloc(struct arena *a, size_t bytes);
/* count * size bytes, with the product checked */
void *arena_array(struct arena *a, size_t count, size_t size);
/* An array of `had` items, NULL if 0, becomes one of `count`: in place where it is the newest thing in the arena and
 * its block has room, else as a copy.  Items beyond `had` are not zeroed. */
void *arena_grow(struct arena *a, void *old, size_t had, size_t count, size_t size);
char *arena_strndup(struct arena *a, const char *s, size_t length);
char *arena_strdup(struct arena *a, const char *s);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
char *arena_vprintf(struct arena *a, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

/* scratch: everything allocated after the mark is gone after the reset */
struct arena_mark arena_mark(const struct arena *a);
void arena_reset(struct arena *a, struct arena_mark mark);

/* bytes handed out so far, for the memory line of benchmarks */
size_t arena_bytes(const struct arena *a);

#define ARENA_NEW(a, type) ((type *)arena_alloc((a), sizeof(type)))
#define ARENA_ARRAY(a, type, n) ((type *)arena_array((a), (n), sizeof(type)))

#endif
