/* The parts of one rectangle of bytes that lie in another, against a walk over all bytes: drawn rectangles of
 * equal and of different pitch.  What is refused is counted: equal pitches never are. */

#include "compiler/verify/cut.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <string.h>

void suite_cut(void);

enum { BYTES = 512, ROUNDS = 40000 };

static uint64_t draw(uint64_t *seed, uint64_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed >> 33) % below;
}

static struct region drawn(uint64_t *seed, uint64_t pitch)
{
    struct region r = {.at = draw(seed, 100), .rows = 1 + draw(seed, 6), .pitch = pitch};
    r.width = draw(seed, 4) ? 1 + draw(seed, pitch) : pitch;
    return r;
}

/* 1 + the place of a byte in its region, by rows and bytes; 0 outside of it */
static void mark(const struct region *r, uint32_t *map)
{
    memset(map, 0, BYTES * sizeof *map);
    for (uint64_t i = 0; i < r->rows; i++)
        for (uint64_t k = 0; k < r->width; k++)
            map[r->at + i * r->pitch + k] = (uint32_t)(1 + i * r->width + k);
}

/* are the cuts all bytes that both have, each once, and from where they say? */
static bool right(const struct region *p, bool uniform, const struct region *r, const struct cuts *c)
{
    uint32_t piece[BYTES], region[BYTES], seen[BYTES] = {0};
    mark(p, piece);
    mark(r, region);
    for (uint32_t n = 0; n < c->n; n++)
        for (uint64_t i = 0; i < c->at[n].rows; i++)
            for (uint64_t k = 0; k < c->at[n].width; k++) {
                uint64_t row = c->at[n].row + i, col = c->at[n].col + k;
                uint64_t from = (c->at[n].from_row + i) * p->width + c->at[n].from_col + k;
                if (row >= r->rows || col >= r->width)
                    return false;
                uint64_t byte = r->at + row * r->pitch + col;
                if (seen[byte]++ || !piece[byte] || (!uniform && piece[byte] != 1 + from))
                    return false;
            }
    for (int byte = 0; byte < BYTES; byte++)
        if ((piece[byte] && region[byte]) != (seen[byte] != 0))
            return false;
    return true;
}

static void test_drawn(void)
{
    uint64_t seed = 7;
    uint32_t said = 0, refused = 0, bad = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t pitch = 1 + draw(&seed, 40), other = draw(&seed, 2) ? pitch : 1 + draw(&seed, 40);
        struct region p = drawn(&seed, pitch), r = drawn(&seed, other);
        bool uniform = draw(&seed, 2);
        if (p.at >= region_end(&r) || r.at >= region_end(&p))
            continue;
        struct cuts c;
        if (!cut_piece(&p, uniform, &r, &c)) {
            CU_ASSERT(p.pitch != r.pitch || p.rows == 1 || r.rows == 1);
            CU_ASSERT(p.rows > 1 || r.rows > 1);
            CU_ASSERT(p.rows > 1 || !uniform); /* one run of equal bytes fits any pitch */
            refused++;
            continue;
        }
        said++;
        if (!right(&p, uniform, &r, &c) && bad++ < 5)
            printf("\n    %llu+%llu x %llu/%llu in %llu+%llu x %llu/%llu%s", (unsigned long long)p.at,
                   (unsigned long long)p.rows, (unsigned long long)p.width, (unsigned long long)p.pitch,
                   (unsigned long long)r.at, (unsigned long long)r.rows, (unsigned long long)r.width,
                   (unsigned long long)r.pitch, uniform ? ", uniform" : "");
    }
    CU_ASSERT_EQUAL(bad, 0);
    CU_ASSERT(said > 10000 && refused > 1000);
    printf("%u cut, %u refused ", said, refused);
}

void suite_cut(void)
{
    CU_pSuite s = CU_add_suite("cut", NULL, NULL);
    CU_add_test(s, "drawn rectangles", test_drawn);
}
