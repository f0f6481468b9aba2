/* A table of what has been asked, one answer per place, the latest; see sets.h.  Questions are compared byte by byte,
 * so that nothing but the same question has the same answer.  Sets of several blocks are rare, and are not remembered.
 */

#include "compiler/verify/sets.h"

#include <string.h>

#define PLACES 4096u /* a power of two */

enum question { NOTHING, ONE, UNION, REDUCE };
struct asked {
    uint64_t question, digit;
    int64_t size;
    struct block x, y; /* y: of a union */
};
struct known {
    struct asked asked;
    struct blocks out;
    bool fine;
};
struct sets {
    struct arena *arena;
    struct known *known;
};

_Static_assert(sizeof(struct asked) % sizeof(uint64_t) == 0, "hashed by words");

struct sets *sets_new(struct arena *a)
{
    struct sets *s = ARENA_NEW(a, struct sets);
    *s = (struct sets){a, ARENA_ARRAY(a, struct known, PLACES)};
    return s;
}

static struct known *find(const struct sets *s, const struct asked *q)
{
    uint64_t word[sizeof *q / sizeof(uint64_t)], h = 0;
    memcpy(word, q, sizeof word);
    size_t n = q->question == UNION ? sizeof word : offsetof(struct asked, y);
    for (size_t i = 0; i < n / sizeof *word; i++)
        h = (h ^ word[i]) * 0x9e3779b97f4a7c15u;
    return &s->known[h >> 32 & (PLACES - 1)];
}

static bool is_asked(const struct known *k, const struct asked *q)
{
    return !memcmp(&k->asked, q, sizeof *q);
}

struct blocks sets_one(struct sets *s, const struct block *b)
{
    struct asked q = {.question = ONE, .x = *b};
    struct known *k = find(s, &q);
    if (!is_asked(k, &q)) {
        struct block *kept = ARENA_NEW(s->arena, struct block);
        *kept = *b;
        *k = (struct known){q, {1, kept}, true};
    }
    return k->out;
}

bool sets_union(struct sets *s, const struct blocks *x, const struct blocks *y, struct blocks *out)
{
    if (x->n != 1 || y->n != 1)
        return blocks_union(s->arena, x, y, out);
    struct asked q = {.question = UNION, .x = x->at[0], .y = y->at[0]};
    struct known *k = find(s, &q);
    if (!is_asked(k, &q)) {
        *k = (struct known){.asked = q};
        k->fine = blocks_union(s->arena, x, y, &k->out);
    }
    if (k->fine)
        *out = k->out;
    return k->fine;
}

bool sets_reduce(struct sets *s, const struct blocks *x, uint32_t digit, int64_t size, struct blocks *out)
{
    if (x->n != 1)
        return blocks_reduce(s->arena, x, digit, size, out);
    struct asked q = {.question = REDUCE, .digit = digit, .size = size, .x = x->at[0]};
    struct known *k = find(s, &q);
    if (!is_asked(k, &q)) {
        *k = (struct known){.asked = q};
        k->fine = blocks_reduce(s->arena, x, digit, size, &k->out);
    }
    if (k->fine)
        *out = k->out;
    return k->fine;
}
