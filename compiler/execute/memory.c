/* Words and their tags; see memory.h.  An element of 2 n bytes is a word with its dtype's tag and n - 1 words that
 * continue it; overwriting any of them breaks the element.  Zeros have the same bytes in every dtype. */

#include "compiler/execute/memory.h"

#include <string.h>

enum tag { TAG_UNDEFINED, TAG_F32, TAG_BF16, TAG_F64, TAG_I32, TAG_F16, TAG_CONTINUES };

static enum tag tag_of(enum dtype d)
{
    switch (d) {
    case DTYPE_F32:
        return TAG_F32;
    case DTYPE_BF16:
        return TAG_BF16;
    case DTYPE_F64:
        return TAG_F64;
    case DTYPE_I32:
        return TAG_I32;
    case DTYPE_F16:
        return TAG_F16;
    case NDTYPES:
        break;
    }
    return TAG_UNDEFINED;
}

void memory_open(struct arena *a, struct memory *m, uint64_t bytes, uint64_t seed)
{
    m->nwords = (bytes + 1) / 2;
    m->word = ARENA_ARRAY(a, uint64_t, m->nwords + 1);
    m->garbage = seed;
    m->undefined = 0;
}

static uint64_t end_of(const struct place *p)
{
    return p->at + ((uint64_t)(p->rows - 1) * p->ld + p->cols) * isa_dtype_bytes(p->dtype);
}

bool memory_holds(const struct memory *m, const struct place *p)
{
    return p->rows && p->cols && p->ld >= p->cols && p->at % 2 == 0 && p->at < 2 * m->nwords &&
           end_of(p) <= 2 * m->nwords;
}

/* Is a word part of an element that is 0?  Then its bytes are 0, which every dtype reads as 0. */
static bool is_zero(const struct memory *m, uint64_t word)
{
    uint64_t back = 0, tag = m->word[word] >> FIELD_BITS;
    while (tag == TAG_CONTINUES && back < 3 && back < word)
        tag = m->word[word - ++back] >> FIELD_BITS;
    uint64_t words = tag == TAG_BF16 || tag == TAG_F16  ? 1
                     : tag == TAG_F64                   ? 4
                     : tag == TAG_F32 || tag == TAG_I32 ? 2
                                                        : 0;
    return back < words && (m->word[word - back] & FIELD_P) == 0;
}

uint64_t memory_read(struct memory *m, uint64_t at, enum dtype dtype)
{
    const uint64_t *w = m->word + at / 2;
    bool whole = *w >> FIELD_BITS == (uint64_t)tag_of(dtype);
    for (uint32_t i = 1; whole && i < isa_dtype_bytes(dtype) / 2; i++)
        whole = w[i] >> FIELD_BITS == TAG_CONTINUES;
    if (whole && dtype == DTYPE_I32)
        return (uint64_t)((int64_t)(*w << (64 - FIELD_BITS)) >> (64 - FIELD_BITS));
    if (whole)
        return *w & FIELD_P;
    bool zero = true;
    for (uint32_t i = 0; zero && i < isa_dtype_bytes(dtype) / 2; i++)
        zero = is_zero(m, at / 2 + i);
    if (zero)
        return 0;
    m->undefined++;
    m->garbage = field_bits(m->garbage, at, m->undefined);
    return dtype == DTYPE_I32 ? m->garbage >> 33 : field_reduce(m->garbage);
}

void memory_write(struct memory *m, uint64_t at, enum dtype dtype, uint64_t value)
{
    uint64_t *w = m->word + at / 2;
    *w = (uint64_t)tag_of(dtype) << FIELD_BITS | (value & FIELD_P);
    for (uint32_t i = 1; i < isa_dtype_bytes(dtype) / 2; i++)
        w[i] = (uint64_t)TAG_CONTINUES << FIELD_BITS;
}

static void forget(struct memory *m, uint64_t at, uint64_t bytes)
{
    memset(m->word + at / 2, 0, bytes / 2 * sizeof *m->word);
}

void memory_load(struct memory *m, const struct place *p, uint64_t *out)
{
    uint64_t size = isa_dtype_bytes(p->dtype);
    const uint64_t head = (uint64_t)TAG_F32 << FIELD_BITS, next = (uint64_t)TAG_CONTINUES << FIELD_BITS;
    if (p->dtype == DTYPE_F32) { /* the most frequent dtype, with the general case below inlined */
        for (uint32_t i = 0; i < p->rows; i++) {
            const uint64_t *w = m->word + p->at / 2 + (uint64_t)i * p->ld * 2;
            for (uint32_t j = 0; j < p->cols; j++, out++)
                *out = w[2 * j] - head <= FIELD_P && w[2 * j + 1] == next
                           ? w[2 * j] - head
                           : memory_read(m, p->at + ((uint64_t)i * p->ld + j) * 4, DTYPE_F32);
        }
        return;
    }
    for (uint32_t i = 0; i < p->rows; i++)
        for (uint32_t j = 0; j < p->cols; j++)
            *out++ = memory_read(m, p->at + ((uint64_t)i * p->ld + j) * size, p->dtype);
}

void memory_store(struct memory *m, const struct place *p, const uint64_t *from)
{
    uint64_t size = isa_dtype_bytes(p->dtype);
    const uint64_t head = (uint64_t)TAG_F32 << FIELD_BITS, next = (uint64_t)TAG_CONTINUES << FIELD_BITS;
    if (p->dtype == DTYPE_F32) {
        for (uint32_t i = 0; i < p->rows; i++) {
            uint64_t *w = m->word + p->at / 2 + (uint64_t)i * p->ld * 2;
            for (uint32_t j = 0; j < p->cols; j++) {
                w[2 * j] = head | (*from++ & FIELD_P);
                w[2 * j + 1] = next;
            }
        }
        return;
    }
    for (uint32_t i = 0; i < p->rows; i++)
        for (uint32_t j = 0; j < p->cols; j++)
            memory_write(m, p->at + ((uint64_t)i * p->ld + j) * size, p->dtype, *from++);
}

void memory_clobber(struct memory *m, const struct place *p)
{
    uint64_t size = isa_dtype_bytes(p->dtype);
    for (uint32_t i = 0; i < p->rows; i++)
        forget(m, p->at + (uint64_t)i * p->ld * size, p->cols * size);
}

void memory_copy(struct memory *to, uint64_t at, const struct memory *from, uint64_t from_at)
{
    uint64_t room = at / 2 < to->nwords ? to->nwords - at / 2 : 0,
             there = from_at / 2 < from->nwords ? from->nwords - from_at / 2 : 0, n = room < there ? room : there;
    if (n)
        memcpy(to->word + at / 2, from->word + from_at / 2, n * sizeof *to->word);
}

/* takes quadratic time only where the bounding ranges overlap */
bool memory_overlap(const struct place *x, const struct place *y)
{
    uint64_t sx = isa_dtype_bytes(x->dtype), sy = isa_dtype_bytes(y->dtype);
    if (x->at >= end_of(y) || y->at >= end_of(x))
        return false;
    for (uint32_t i = 0; i < x->rows; i++) {
        uint64_t from = x->at + (uint64_t)i * x->ld * sx, to = from + x->cols * sx;
        for (uint32_t j = 0; j < y->rows; j++) {
            uint64_t start = y->at + (uint64_t)j * y->ld * sy;
            if (start < to && from < start + y->cols * sy)
                return true;
        }
    }
    return false;
}
