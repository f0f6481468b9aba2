/* Kinds of equal work: every instruction that counts gets a key of what it does and on what shapes; the kinds are the
 * keys that more than one rank has, the weightiest first.  O(n log n) for all programs together. */

#include "runtime/work.h"
#include "runtime/hash.h"

#include <stdlib.h>
#include <string.h>

struct item {
    uint64_t key, weight;
    uint32_t role, insn, nranks;
};

static bool counts(const struct program *p, const struct insn *in)
{
    const struct isa_info *info = isa_info(in->op);
    if (info->unit != UNIT_MATMUL && info->unit != UNIT_ATTENTION && info->unit != UNIT_STREAM)
        return false;
    for (uint32_t i = 0; i < info->noperands; i++)
        if (p->operands[in->operand + i].buffer != NONE && p->operands[in->operand + i].dtype == DTYPE_I32)
            return false;
    for (uint32_t i = 0; i < info->nattrs; i++)
        if (p->attrs[in->attr + i].slot != NONE)
            return false;
    return true;
}

/* about how long it takes, in no unit */
static uint64_t weigh(const struct program *p, const struct insn *in, const struct isa_info *info)
{
    const struct operand *o = &p->operands[in->operand];
    uint64_t sum = 0;
    for (uint32_t i = 0; i < info->noperands; i++)
        sum += o[i].buffer == NONE ? 0 : (uint64_t)o[i].rows * o[i].cols;
    return info->unit == UNIT_STREAM ? sum : (uint64_t)o[0].rows * o[0].cols + 8 * sum;
}

static struct item item_of(const struct program *p, uint32_t role, uint32_t insn, uint32_t nranks)
{
    const struct insn *in = &p->insns[insn];
    const struct isa_info *info = isa_info(in->op);
    uint64_t words[1 + 4 * ISA_MAX_OPERANDS + ISA_MAX_ATTRS] = {(uint64_t)in->op}, n = 1;
    for (uint32_t i = 0; i < info->noperands; i++) {
        const struct operand *o = &p->operands[in->operand + i];
        bool given = o->buffer != NONE;
        words[n++] = given;
        words[n++] = given ? (uint64_t)o->dtype << 8 | o->mark : 0;
        words[n++] = given ? (uint64_t)o->rows << 32 | o->cols : 0;
        words[n++] = given ? o->ld : 0;
    }
    for (uint32_t i = 0; i < info->nattrs; i++)
        words[n++] = (uint64_t)p->attrs[in->attr + i].u.i;
    return (struct item){hash64(words, n * sizeof *words, 0), nranks * weigh(p, in, info), role, insn, nranks};
}

static int by_key(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    return x->key != y->key     ? (x->key < y->key ? -1 : 1)
           : x->role != y->role ? (x->role < y->role ? -1 : 1)
                                : (x->insn > y->insn) - (x->insn < y->insn);
}

/* items of one key in a row, and what they weigh together */
struct run {
    uint64_t weight;
    size_t first, n;
};

static int by_weight(const void *a, const void *b)
{
    const struct run *x = a, *y = b;
    return x->weight != y->weight ? (x->weight > y->weight ? -1 : 1) : (x->first > y->first) - (x->first < y->first);
}

/* the keys that more than one rank has, of items in the order of keys */
static size_t find_runs(const struct item *items, size_t n, struct run *runs)
{
    size_t nruns = 0;
    for (size_t i = 0, next; i < n; i = next) {
        struct run run = {.first = i};
        uint64_t nranks = 0;
        for (next = i; next < n && items[next].key == items[i].key; next++) {
            run.weight += items[next].weight;
            nranks += next == i || items[next].role != items[next - 1].role ? items[next].nranks : 0;
        }
        run.n = next - i;
        if (nranks > 1)
            runs[nruns++] = run;
    }
    qsort(runs, nruns, sizeof *runs, by_weight);
    return nruns;
}

static void take_kinds(struct work *w, const struct item *items, const struct run *runs, size_t nruns,
                       const struct program *const *programs)
{
    uint64_t all = 0;
    for (size_t i = 0; i < nruns; i++)
        all += runs[i].weight;
    /* what is a fiftieth of all or less is not worth asking the time for */
    while (w->nkinds < nruns && w->nkinds < WORK_KINDS && runs[w->nkinds].weight > all / 50)
        w->nkinds++;
    for (uint32_t k = 0; k < w->nkinds; k++)
        for (size_t i = 0; i < runs[k].n; i++) {
            const struct item *item = &items[runs[k].first + i];
            w->op[k] = programs[item->role]->insns[item->insn].op;
            w->kind[item->role][item->insn] = (uint8_t)k;
            w->count[item->role][k]++;
        }
}

static bool allocate(struct work *w, const struct program *const *programs)
{
    w->kind = calloc(w->nroles + (size_t)1, sizeof *w->kind);
    w->count = calloc(w->nroles + (size_t)1, sizeof *w->count);
    for (uint32_t role = 0; w->kind && role < w->nroles; role++) {
        size_t n = programs[role]->ninsns + (size_t)1;
        w->kind[role] = malloc(n);
        if (!w->kind[role])
            return false;
        memset(w->kind[role], WORK_NONE, n);
    }
    return w->kind && w->count;
}

enum status work_make(struct work *w, const struct ranks *r, const struct program *const *programs)
{
    size_t room = 1, n = 0;
    *w = (struct work){.nroles = r->nroles};
    for (uint32_t role = 0; role < r->nroles; role++)
        room += programs[role]->ninsns;
    struct item *items = calloc(room, sizeof *items);
    struct run *runs = calloc(room, sizeof *runs);
    uint32_t *nranks = calloc(r->nroles + (size_t)1, sizeof *nranks);
    bool fine = items && runs && nranks && allocate(w, programs);
    for (uint32_t i = 0; fine && i < r->nranks; i++)
        nranks[r->ranks[i].role]++;
    for (uint32_t role = 0; fine && role < r->nroles; role++)
        for (uint32_t i = 0; i < programs[role]->ninsns; i++)
            if (counts(programs[role], &programs[role]->insns[i]))
                items[n++] = item_of(programs[role], role, i, nranks[role]);
    if (fine) {
        qsort(items, n, sizeof *items, by_key);
        take_kinds(w, items, runs, find_runs(items, n, runs), programs);
    }
    free(items);
    free(runs);
    free(nranks);
    return fine ? STATUS_OK : STATUS_WORLD;
}

void work_free(struct work *w)
{
    for (uint32_t role = 0; w->kind && role < w->nroles; role++)
        free(w->kind[role]);
    free(w->kind);
    free(w->count);
    *w = (struct work){0};
}
