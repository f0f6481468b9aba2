/* A heap against a search through all of its elements, with many of equal rank. */

#include "compiler/support/heap.h"

#include <CUnit/CUnit.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

struct guest {
    int rank;
    uint32_t number;
};

static bool goes_first(const struct guest *x, const struct guest *y)
{
    return x->rank < y->rank;
}

HEAP(guests, struct guest, goes_first)

static void test_order(void)
{
    enum { MOST = 60 };
    struct guest heap[MOST];
    bool inside[4000] = {false};
    int ranks[4000];
    size_t n = 0;
    srand(11);
    for (uint32_t number = 0; number < 4000 || n;) {
        if (number < 4000 && n < MOST && (!n || rand() % 2)) {
            ranks[number] = rand() % 9;
            inside[number] = true;
            guests_push(heap, n++, (struct guest){ranks[number], number});
            number++;
            continue;
        }
        int least = 9;
        for (uint32_t i = 0; i < number; i++)
            least = inside[i] && ranks[i] < least ? ranks[i] : least;
        struct guest first = guests_pop(heap, n--);
        CU_ASSERT_FATAL(first.number < number && inside[first.number] && ranks[first.number] == first.rank);
        CU_ASSERT_EQUAL(first.rank, least);
        inside[first.number] = false;
    }
}

void suite_heap(void);
void suite_heap(void)
{
    CU_pSuite s = CU_add_suite("heap", NULL, NULL);
    CU_add_test(s, "the first comes first", test_order);
}
