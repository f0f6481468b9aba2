/* A plan is known by its table of ranks alone; whether its folder is whole is looked at when it is opened. */

#include "runtime/spare.h"

#include <stdio.h>
#include <string.h>

enum { MOST_FEWER = 99 };

static uint32_t ranks_of(const char *dir)
{
    char path[4300];
    struct ranks *ranks;
    struct error error;
    snprintf(path, sizeof path, "%.4200s/ranks.bin", dir);
    if (ranks_read(path, &ranks, &error) != STATUS_OK)
        return 0;
    uint32_t n = ranks->nranks;
    ranks_free(ranks);
    return n;
}

void spare_choose(struct run *r, uint32_t started, bool first)
{
    uint32_t planned = ranks_of(r->o.dir);
    int length = (int)strlen(r->o.dir);
    while (length > 1 && r->o.dir[length - 1] == '/')
        length--;
    for (int k = 1; k <= MOST_FEWER && planned && started && planned != started; k++) {
        snprintf(r->spare, sizeof r->spare, "%.*s.minus%d", length, r->o.dir, k);
        uint32_t n = ranks_of(r->spare);
        if (!n)
            return;
        if (n != started)
            continue;
        if (first && !r->o.quiet)
            fprintf(stderr, "llmrun: %u ranks were started, %s is for %u: taking %s\n", started, r->o.dir, planned,
                    r->spare);
        r->o.dir = r->spare;
        return;
    }
}
