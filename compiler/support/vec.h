#ifndef LLMC_VEC_H
#define LLMC_VEC_H

/* Typed growing arrays in an arena: VEC(int) v = {0};  vec_push(arena, &v, 7);  v.at[0].
 * Growth doubles, in place where nothing else came into the arena since; else the old copy stays there, so that at most
 * half of the bytes are waste.  What is reserved is not zeroed. */

#include "compiler/support/arena.h"

#include <string.h>

#define VEC(type)                                                                                                      \
    struct {                                                                                                           \
        type *at;                                                                                                      \
        size_t n, room;                                                                                                \
    }

#define vec_reserve(arena, v, count)                                                                                   \
    do {                                                                                                               \
        size_t vec_want_ = (count);                                                                                    \
        if (vec_want_ > (v)->room) {                                                                                   \
            size_t vec_room_ = (v)->room ? (v)->room : 8;                                                              \
            while (vec_room_ < vec_want_)                                                                              \
                vec_room_ *= 2;                                                                                        \
            (v)->at = arena_grow((arena), (v)->at, (v)->room, vec_room_, sizeof *(v)->at);                             \
            (v)->room = vec_room_;                                                                                     \
        }                                                                                                              \
    } while (0)

#define vec_push(arena, v, ...)                                                                                        \
    do {                                                                                                               \
        vec_reserve((arena), (v), (v)->n + 1);                                                                         \
        (v)->at[(v)->n++] = (__VA_ARGS__);                                                                             \
    } while (0)

#define ARRAY_LEN(a) (sizeof(a) / sizeof *(a))

#endif
