/* The table of ranks: role, place and slot values of every rank, and all groups; its file is a container of
 * three sections (counts, groups, ranks) of varints.
 *
 * A group is a box of the mesh: first + sum i_a stride_a.  Strides must nest (each larger than the span of
 * all smaller ones), so members are distinct, and whether a rank is a member is decided by division. */

#include "runtime/program.h"
#include "runtime/program_share.h"
#include "runtime/program_bytes.h"
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

#define RANKS_MAGIC "LLMCRNK"
#define RANKS_VERSION 1
#define LIMIT_RANKS (1u << 24)
#define LIMIT_GROUPS (1u << 26)

enum { SECTION_COUNTS, SECTION_GROUPS, SECTION_RANKS, NSECTIONS };

static struct container ranks_container(void)
{
    return (struct container){.magic = RANKS_MAGIC, .what = "rank", .version = RANKS_VERSION, .nsections = NSECTIONS};
}

/* Ranks are alike, so each is stored as its differences from the one before: mostly a byte per number. */
enum status ranks_encode(const struct ranks *r, uint8_t **bytes, size_t *size)
{
    struct bytes section[NSECTIONS] = {{0}};
    uint32_t nvalues = 0, last = 0; /* values of the rank before: last .. nvalues */
    *bytes = NULL;
    *size = 0;
    for (uint32_t i = 0; i < r->nranks; i++)
        if (r->ranks[i].slot < (i ? r->ranks[i - 1].slot : 0) || r->ranks[i].slot > r->nvalues ||
            (!i && r->ranks[i].slot))
            return STATUS_BUG;
    const uint32_t counts[] = {r->nranks, r->nroles, r->ngroups, r->nvalues};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        bytes_number(&section[SECTION_COUNTS], counts[i]);
    for (uint32_t i = 0; i < r->ngroups; i++) {
        const struct group *g = &r->groups[i];
        bytes_signed(&section[SECTION_GROUPS], (int64_t)g->first - (i ? (int64_t)r->groups[i - 1].first : 0));
        for (int a = 0; a < NAXES; a++) {
            bytes_number(&section[SECTION_GROUPS], g->n[a]);
            bytes_number(&section[SECTION_GROUPS], g->stride[a]);
        }
    }
    for (uint32_t i = 0; i < r->nranks; i++) {
        const struct rank_info *k = &r->ranks[i];
        struct bytes *b = &section[SECTION_RANKS];
        uint32_t n = (i + 1 < r->nranks ? r->ranks[i + 1].slot : r->nvalues) - k->slot;
        bytes_number(b, k->role);
        bytes_signed(b, (int64_t)k->node - (i ? (int64_t)r->ranks[i - 1].node : 0));
        bytes_number(b, k->gpu);
        bytes_number(b, n);
        for (uint32_t j = 0; j < n; j++)
            bytes_signed(b, (int64_t)(r->values[nvalues + j] - (last + j < nvalues ? r->values[last + j] : 0)));
        last = nvalues;
        nvalues += n;
    }
    const struct container c = ranks_container();
    container_write(&c, section, bytes, size);
    return STATUS_OK;
}

/* axes of more than one member, by growing stride; returns their number */
static int sort_axes(const struct group *g, int axis[NAXES])
{
    int n = 0;
    for (int a = 0; a < NAXES; a++) {
        if (g->n[a] == 1)
            continue;
        int at = n++;
        for (; at && g->stride[axis[at - 1]] > g->stride[a]; at--)
            axis[at] = axis[at - 1];
        axis[at] = a;
    }
    return n;
}

/* Members distinct and below nranks.  n members of nested strides span n - 1 ranks or more; 0 are as 2^32. */
static bool group_valid(const struct group *g, uint32_t nranks)
{
    int axis[NAXES], n = sort_axes(g, axis);
    uint64_t span = 0;
    for (int i = 0; i < n; i++) {
        if (g->stride[axis[i]] <= span)
            return false;
        span += (uint64_t)(g->n[axis[i]] - 1) * g->stride[axis[i]]; /* beyond 2^32 no stride is larger */
    }
    return g->first < nranks && span < nranks - g->first;
}

static bool group_contains(const struct group *g, uint32_t rank)
{
    int axis[NAXES];
    rank -= g->first; /* of ranks before it far beyond the last member */
    for (int i = sort_axes(g, axis); i-- > 0;) {
        uint32_t steps = rank / g->stride[axis[i]], most = g->n[axis[i]] - 1;
        rank -= (steps < most ? steps : most) * g->stride[axis[i]];
    }
    return !rank;
}

static void read_groups(struct ranks *r, struct reader *s)
{
    for (uint32_t i = 0; i < r->ngroups; i++) {
        struct group *g = &r->groups[i];
        g->first = (i ? r->groups[i - 1].first : 0) + (uint32_t)read_signed(s);
        for (int a = 0; a < NAXES; a++) {
            g->n[a] = (uint32_t)read_number(s);
            g->stride[a] = (uint32_t)read_number(s);
        }
    }
}

static void read_ranks(struct ranks *r, struct reader *s)
{
    uint32_t nvalues = 0, last = 0;
    for (uint32_t i = 0; i < r->nranks; i++) {
        struct rank_info *k = &r->ranks[i];
        k->role = (uint32_t)read_number(s);
        k->node = (i ? r->ranks[i - 1].node : 0) + (uint32_t)read_signed(s);
        k->gpu = (uint32_t)read_number(s);
        k->slot = nvalues;
        uint32_t n = (uint32_t)read_below(s, r->nvalues - nvalues + 1u);
        for (uint32_t j = 0; j < n; j++)
            r->values[nvalues + j] = (uint64_t)read_signed(s) + (last + j < nvalues ? r->values[last + j] : 0);
        last = nvalues;
        nvalues += n;
    }
}

#define FAULT(...) error_set(error, STATUS_INPUT, __VA_ARGS__)

static enum status check_table(const struct ranks *r, struct error *error)
{
    for (uint32_t i = 0; i < r->ngroups; i++)
        if (!group_valid(&r->groups[i], r->nranks))
            return FAULT("group %u: its members are not distinct ranks below %u", i, r->nranks);
    for (uint32_t i = 0; i < r->nranks; i++)
        if (r->ranks[i].role >= r->nroles)
            return FAULT("rank %u: role %u of %u", i, r->ranks[i].role, r->nroles);
    return STATUS_OK;
}

/* there is one form per table: what was read must encode to the bytes it was read from */
static enum status check_canonical(const struct ranks *r, const uint8_t *bytes, size_t size, struct error *error)
{
    uint8_t *again;
    size_t again_size;
    TRY(ranks_encode(r, &again, &again_size));
    bool same = size == again_size && !memcmp(bytes, again, size);
    free(again);
    return same ? STATUS_OK : FAULT("it is not written in the one form its contents have");
}

enum status ranks_decode(const uint8_t *bytes, size_t size, struct ranks **r, struct error *error)
{
    const struct container c = ranks_container();
    struct reader section[NSECTIONS], *s = &section[SECTION_COUNTS];
    *r = NULL;
    if (size > LIMIT_FILE)
        return FAULT("%zu bytes, at most %llu are read", size, (unsigned long long)LIMIT_FILE);
    TRY(container_open(&c, bytes, size, section, error));
    size_t group_bytes = (size_t)(section[SECTION_GROUPS].end - section[SECTION_GROUPS].at);
    size_t rank_bytes = (size_t)(section[SECTION_RANKS].end - section[SECTION_RANKS].at);
    uint32_t nranks = (uint32_t)read_below(s, LIMIT_RANKS + 1);
    uint32_t nroles = (uint32_t)read_below(s, LIMIT_ROLES + 1);
    uint32_t ngroups = (uint32_t)read_below(s, LIMIT_GROUPS + 1);
    uint32_t nvalues = (uint32_t)read_number(s);
    /* each of them takes at least a byte */
    if (s->bad || nranks > rank_bytes || nvalues > rank_bytes || ngroups > group_bytes)
        return FAULT("its header is malformed");
    struct ranks *table = ranks_new(nranks, nroles, ngroups, nvalues);
    enum status status = STATUS_OK;
    read_groups(table, &section[SECTION_GROUPS]);
    read_ranks(table, &section[SECTION_RANKS]);
    if (section[SECTION_GROUPS].bad)
        status = FAULT("its groups are malformed");
    else if (section[SECTION_RANKS].bad)
        status = FAULT("its ranks are malformed");
    else
        status = check_table(table, error);
    if (status == STATUS_OK)
        status = check_canonical(table, bytes, size, error);
    if (status == STATUS_OK)
        *r = table;
    else
        ranks_free(table);
    return status;
}

enum status ranks_read(const char *path, struct ranks **r, struct error *error)
{
    uint8_t *bytes;
    size_t size;
    *r = NULL;
    TRY(container_load(path, &bytes, &size, error));
    enum status s = ranks_decode(bytes, size, r, error);
    free(bytes);
    return s == STATUS_OK ? s : FAULT("%s: %s", path, error->text);
}

static enum status check_value(const struct ranks *r, uint32_t rank, const struct slot *s, uint64_t v,
                               struct error *error)
{
    switch (s->kind) {
    case SLOT_COORD:
    case SLOT_FIRST:
    case SLOT_BEHIND:
        if (v > (uint64_t)s->most)
            return FAULT("rank %u: slot %s is %llu, at most %lld is declared", rank, s->name, (unsigned long long)v,
                         (long long)s->most);
        break;
    case SLOT_PEER:
        if (v >= r->nranks || v > (uint64_t)s->most)
            return FAULT("rank %u: peer %s is %llu, of %u ranks and at most %lld declared", rank, s->name,
                         (unsigned long long)v, r->nranks, (long long)s->most);
        break;
    case SLOT_GROUP:
        if (v >= r->ngroups)
            return FAULT("rank %u: group %s is %llu of %u", rank, s->name, (unsigned long long)v, r->ngroups);
        if (group_size(&r->groups[v]) != (uint64_t)s->most)
            return FAULT("rank %u: group %s has %u members, %lld are declared", rank, s->name,
                         group_size(&r->groups[v]), (long long)s->most);
        if (!group_contains(&r->groups[v], rank))
            return FAULT("rank %u: it is not a member of its group %s", rank, s->name);
        break;
    }
    return STATUS_OK;
}

enum status ranks_check(const struct ranks *r, const struct program *const *programs, struct error *error)
{
    TRY(check_table(r, error));
    for (uint32_t i = 0; i < r->nranks; i++) {
        const struct program *p = programs[r->ranks[i].role];
        uint32_t first = r->ranks[i].slot, end = i + 1 < r->nranks ? r->ranks[i + 1].slot : r->nvalues;
        if (first > end || end > r->nvalues || end - first != p->nslots)
            return FAULT("rank %u: values %u to %u of %u, but its program has %u slots", i, first, end, r->nvalues,
                         p->nslots);
        for (uint32_t k = 0; k < p->nslots; k++)
            TRY(check_value(r, i, &p->slots[k], r->values[first + k], error));
    }
    return STATUS_OK;
}
