/* Channels from groups and from the SEND and RECV instructions of all ranks' programs. */

#include "runtime/channels.h"

#include <stdlib.h>
#include <string.h>

uint64_t rank_value(const struct ranks *r, uint32_t rank, uint32_t slot)
{
    return r->values[r->ranks[rank].slot + slot];
}

bool insn_is_meeting(const struct insn *in)
{
    enum unit unit = isa_info(in->op)->unit;
    return unit == UNIT_P2P || unit == UNIT_COLLECTIVE;
}

/* sender and receiver of a P2P instruction */
static size_t pair_index(const struct ranks *r, uint32_t rank, const struct program *p, const struct insn *in)
{
    uint32_t peer = (uint32_t)rank_value(r, rank, p->attrs[in->attr + ATTR(SEND, peer)].slot);
    return in->op == OP_SEND ? (size_t)rank * r->nranks + peer : (size_t)peer * r->nranks + rank;
}

static void mark_pairs(struct channels *c, const struct ranks *r, uint32_t rank, const struct program *p)
{
    for (uint32_t i = 0; p && i < p->ninsns; i++)
        if (p->insns[i].op == OP_SEND || p->insns[i].op == OP_RECV)
            c->pair[pair_index(r, rank, p, &p->insns[i])] = 0;
}

static size_t count_members(const struct ranks *r, const struct channels *c, uint32_t *npairs)
{
    size_t members = 0;
    *npairs = 0;
    for (uint32_t g = 0; g < r->ngroups; g++)
        members += group_size(&r->groups[g]);
    for (size_t i = 0; i < (size_t)r->nranks * r->nranks; i++)
        *npairs += c->pair[i] != NONE;
    return members + 2 * (size_t)*npairs;
}

static void list_channels(struct channels *c, const struct ranks *r)
{
    uint32_t *next = c->members;
    for (uint32_t g = 0; g < r->ngroups; g++) {
        c->list[g] = (struct channel){group_size(&r->groups[g]), next};
        for (uint32_t m = 0; m < c->list[g].nmembers; m++)
            *next++ = group_rank(&r->groups[g], m);
    }
    c->n = r->ngroups;
    for (size_t i = 0; i < (size_t)r->nranks * r->nranks; i++) {
        if (c->pair[i] == NONE)
            continue;
        c->pair[i] = c->n;
        c->list[c->n++] = (struct channel){2, next};
        *next++ = (uint32_t)(i / r->nranks);
        *next++ = (uint32_t)(i % r->nranks);
    }
}

enum status channels_make(struct channels *c, const struct ranks *r, const struct program *const *const *sets,
                          uint32_t nsets)
{
    uint32_t npairs;
    *c = (struct channels){.nranks = r->nranks};
    c->pair = malloc((size_t)r->nranks * r->nranks * sizeof *c->pair);
    if (!c->pair)
        return STATUS_WORLD;
    memset(c->pair, 0xff, (size_t)r->nranks * r->nranks * sizeof *c->pair);
    for (uint32_t s = 0; s < nsets; s++)
        for (uint32_t rank = 0; rank < r->nranks; rank++)
            mark_pairs(c, r, rank, sets[s][r->ranks[rank].role]);
    size_t members = count_members(r, c, &npairs);
    c->members = calloc(members + 1, sizeof *c->members);
    c->list = calloc((size_t)r->ngroups + npairs + 1, sizeof *c->list);
    if (!c->members || !c->list) {
        channels_free(c);
        return STATUS_WORLD;
    }
    list_channels(c, r);
    return STATUS_OK;
}

void channels_free(struct channels *c)
{
    free(c->pair);
    free(c->members);
    free(c->list);
    *c = (struct channels){0};
}

uint32_t channels_of(const struct channels *c, const struct ranks *r, uint32_t rank, const struct program *p,
                     uint32_t insn, uint32_t *self)
{
    const struct insn *in = &p->insns[insn];
    uint32_t channel;
    if (isa_info(in->op)->unit == UNIT_P2P)
        channel = c->pair[pair_index(r, rank, p, in)];
    else /* every collective's group is its first attribute */
        channel = (uint32_t)rank_value(r, rank, p->attrs[in->attr + ATTR(ALL_REDUCE, group)].slot);
    *self = NONE;
    for (uint32_t m = 0; m < c->list[channel].nmembers; m++)
        if (c->list[channel].members[m] == rank)
            *self = m;
    return channel;
}
