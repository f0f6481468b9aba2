/* qsort() as glibc's is: merging, so that what compares equal keeps its order.  The library's own would order it
 * otherwise, and plans would differ from those of the command line. */

#include "compiler/support/arena.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct sort {
    size_t size;
    int (*compare)(const void *, const void *);
};

static void merge_sort(const struct sort *s, char *at, size_t n, char *room)
{
    if (n < 2)
        return;
    size_t half = n / 2;
    char *left = room, *right = at + half * s->size, *end = at + n * s->size;
    merge_sort(s, at, half, room);
    merge_sort(s, right, n - half, room);
    memcpy(room, at, half * s->size);
    for (char *left_end = room + half * s->size; left < left_end; at += s->size) {
        bool first = right == end || s->compare(left, right) <= 0;
        memcpy(at, first ? left : right, s->size);
        *(first ? &left : &right) += s->size;
    }
}

void qsort(void *base, size_t n, size_t size, int (*compare)(const void *, const void *))
{
    char *room = malloc(n * size + 1);
    if (!room)
        arena_exhausted(n * size);
    merge_sort(&(struct sort){size, compare}, base, n, room);
    free(room);
}
