/* The table of ranks: role, place and slot values of every rank, and all groups.
 *
 * A group is a box of the mesh: first + sum i_a stride_a.  Strides must nest (each larger than the span of all
 * smaller ones), so members are distinct, and whether a rank is a member is decided by division. */

#include "runtime/program.h"
#include "runtime/program_words.h"

#include <stdlib.h>
#include <string.h>

static void *zeroed(size_t n, size_t item)
{
    return memset(program_alloc(NULL, n, item), 0, n * item);
}

struct ranks *ranks_new(uint32_t nranks, uint32_t nroles, uint32_t ngroups, uint32_t nvalues)
{
    struct ranks *r = program_alloc(NULL, 1, sizeof *r);
    *r = (struct ranks){.nranks = nranks, .nroles = nroles, .ngroups = ngroups, .nvalues = nvalues};
    r->groups = zeroed(ngroups, sizeof *r->groups);
    r->ranks = zeroed(nranks, sizeof *r->ranks);
    r->values = zeroed(nvalues, sizeof *r->values);
    return r;
}

void ranks_free(struct ranks *r)
{
    if (!r)
        return;
    free(r->groups);
    free(r->ranks);
    free(r->values);
    free(r);
}

uint32_t group_size(const struct group *g)
{
    uint32_t size = 1;
    for (int a = 0; a < NAXES; a++)
        size *= g->n[a];
    return size;
}

uint32_t group_rank(const struct group *g, uint32_t i)
{
    uint32_t rank = g->first;
    for (int a = 0; a < NAXES; a++) {
        rank += i % g->n[a] * g->stride[a];
        i /= g->n[a];
    }
    return rank;
}
