#ifndef LLMC_HEAP_H
#define LLMC_HEAP_H

/* Binary heaps in arrays of the caller's:  HEAP(events, struct event, before)  defines
 *     void events_push(struct event *at, size_t n, struct event x)    at[0 .. n - 1] was a heap, at[0 .. n] is one
 *     struct event events_pop(struct event *at, size_t n)             takes the first of n, n >= 1; n - 1 are left
 * before(const struct event *x, const struct event *y) is a strict order.  Which of equal elements comes first follows
 * from the order of the calls alone.  O(log n). */

#include <stddef.h>

#define HEAP(name, type, before)                                                                                       \
    static inline void name##_push(type *at, size_t n, type x)                                                         \
    {                                                                                                                  \
        for (; n && before(&x, &at[(n - 1) / 2]); n = (n - 1) / 2)                                                     \
            at[n] = at[(n - 1) / 2];                                                                                   \
        at[n] = x;                                                                                                     \
    }                                                                                                                  \
    static inline type name##_pop(type *at, size_t n)                                                                  \
    {                                                                                                                  \
        const type top = at[0], last = at[--n];                                                                        \
        size_t i = 0;                                                                                                  \
        for (size_t child; (child = 2 * i + 1) < n; i = child) {                                                       \
            child += child + 1 < n && before(&at[child + 1], &at[child]);                                              \
            if (!before(&at[child], &last))                                                                            \
                break;                                                                                                 \
            at[i] = at[child];                                                                                         \
        }                                                                                                              \
        at[i] = last;                                                                                                  \
        return top;                                                                                                    \
    }

#endif
