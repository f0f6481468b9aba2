/* Mutations of tables: buffers, tensors, and what ranks.bin says. */

#include "tests/compiler/verify/mutate_private.h"

#include <string.h>

bool mutate_buffers(const struct mutate_draw *d)
{
    struct program *q = mutate_own(d->m, d->role, d->evaluation);
    uint32_t b = random_below(d->random, q->nbuffers), other = random_below(d->random, q->nbuffers);
    struct buffer *x = &q->buffers[b];
    uint32_t slot = x->scattered ? random_below(d->random, q->rings[x->ring].depth) : 0;
    uint64_t *at = x->scattered ? &q->places[x->place + slot] : &x->offset;
    uint64_t before = *at, bytes = x->scattered ? x->stride : x->bytes;
    mutate_add_site(d->m, d->role, d->evaluation, NONE, *at, *at + bytes);
    if (d->m->kind == MUTATE_ARENA) {
        d->m->global = true;
        if (random_below(d->random, 2))
            q->arena_bytes += (uint64_t)4 << 30;
        else
            *at = q->arena_bytes / 256 * 256;
        return true;
    }
    switch (random_below(d->random, 3)) {
    case 0:
        *at = q->buffers[other].offset;
        break;
    case 1:
        *at += 256;
        break;
    default:
        *at -= *at ? 256 : 0;
        break;
    }
    if (x->scattered)
        x->offset = q->places[x->place];
    mutate_add_site(d->m, d->role, d->evaluation, NONE, *at, *at + bytes);
    return *at != before;
}

bool mutate_slot_value(const struct mutate_draw *d)
{
    struct ranks *r = d->m->plan.ranks = mutate_copy_ranks(d->m->original->ranks);
    uint32_t rank = random_below(d->random, r->nranks),
             slots = d->m->original->train[r->ranks[rank].role]->nslots;
    d->m->global = true;
    if (random_below(d->random, 3) == 0) {
        struct group *g = &r->groups[random_below(d->random, r->ngroups ? r->ngroups : 1)];
        if (!r->ngroups)
            return false;
        if (random_below(d->random, 2))
            g->first += random_below(d->random, 2) ? 1 : UINT32_MAX;
        else
            g->stride[0] += 1;
        return g->n[0] > 1;
    }
    if (!slots)
        return false;
    uint64_t *v = &r->values[r->ranks[rank].slot + random_below(d->random, slots)];
    *v += random_below(d->random, 2) || !*v ? 1 : UINT64_MAX;
    return true;
}

bool mutate_gpu(const struct mutate_draw *d)
{
    struct ranks *r = d->m->plan.ranks = mutate_copy_ranks(d->m->original->ranks);
    uint32_t rank = random_below(d->random, r->nranks);
    d->m->global = true;
    switch (random_below(d->random, 3)) {
    case 0:
        r->ranks[rank].gpu++;
        break;
    case 1:
        r->ranks[rank].node++;
        break;
    default:
        r->ranks[rank].role = (r->ranks[rank].role + 1) % r->nroles;
        return r->nroles > 1;
    }
    return true;
}

bool mutate_tensor(const struct mutate_draw *d)
{
    struct program *q = mutate_own(d->m, d->role, d->evaluation);
    d->m->global = true;
    if (!q->ntensors)
        return false;
    struct tensor *t = &q->tensors[random_below(d->random, q->ntensors)],
                  *u = &q->tensors[random_below(d->random, q->ntensors)];
    char name[sizeof t->name];
    switch (random_below(d->random, 6)) {
    case 0:
        memcpy(name, t->name, sizeof name);
        memcpy(t->name, u->name, sizeof name);
        memcpy(u->name, name, sizeof name);
        return strcmp(t->name, u->name) != 0;
    case 1:
        t->row++;
        break;
    case 2:
        t->row_stride += t->row_slot != NONE;
        t->col_stride += t->col_slot != NONE;
        return t->row_slot != NONE || t->col_slot != NONE;
    case 3:
        t->transposed = !t->transposed;
        break;
    case 4:
        q->buckets[random_below(d->random, q->nbuckets)].decay ^= true;
        break;
    default:
        t->col++;
        break;
    }
    return true;
}

