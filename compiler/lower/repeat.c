/* Actions that repeat: the same kind of action on the same chunk is the same instructions for every microbatch,
 * except for the microbatch in their tags and the numbers of its samples.  So the second one is remembered (the
 * first one writes gradients, later ones add to them), and later ones are copies of it, with shared lists of
 * operands.  Written anew are the chunk's last backward pass, which differs, and all actions where parameters are
 * gathered or gradients scattered, whose buffers take turns and whose work extends beyond the action. */

#include "compiler/lower/step.h"

#include "runtime/program_share.h"

struct repeat {                       /* one action, or two that overlap */
    uint32_t stage[2], microbatch[2]; /* tags of the remembered instructions */
    char kind[2];
    uint32_t seen, first, end; /* range of instructions, valid once seen = 2 */
};

static struct chunk *chunk_of(struct lower *l, const struct action *a)
{
    for (uint32_t i = 0; i < l->nchunks; i++)
        if (l->chunks[i].index == a->stage)
            return &l->chunks[i];
    return NULL;
}

static uint32_t microbatch_of(struct lower *l, const struct schedule *s, const struct action *a)
{
    return chunk_of(l, a)->copy * s->microbatches + a->microbatch;
}

static bool is_regular(struct lower *l, const struct action *a)
{
    for (uint32_t i = 0; i < l->npieces; i++)
        if (l->pieces[i].gathers || l->pieces[i].scatters)
            return false;
    if (a->pair && a[0].kind == a[1].kind && chunk_of(l, a)->stage_index == chunk_of(l, a + 1)->stage_index)
        return false;
    for (uint32_t k = 0; k < 1u + a->pair; k++)
        if ((a[k].kind == 'B' || a[k].kind == 'W') && chunk_of(l, &a[k])->left <= 2)
            return false;
    return true;
}

static struct repeat *find_repeat(struct lower *l, const struct action *a)
{
    uint32_t n = 1u + a->pair;
    for (size_t i = 0; i < l->repeats.n; i++) {
        struct repeat *r = &l->repeats.at[i];
        bool same = (r->kind[1] != 0) == a->pair;
        for (uint32_t k = 0; k < n && same; k++)
            same = r->kind[k] == a[k].kind && r->stage[k] == a[k].stage;
        if (same)
            return r;
    }
    struct repeat r = {0};
    for (uint32_t k = 0; k < n; k++) {
        r.kind[k] = a[k].kind;
        r.stage[k] = a[k].stage;
    }
    vec_push(l->arena, &l->repeats, r);
    return &l->repeats.at[l->repeats.n - 1];
}

void lower_remember(struct lower *l, const struct schedule *s, const struct action *a, uint32_t first)
{
    struct repeat *r = find_repeat(l, a);
    if (!is_regular(l, a) || ++r->seen != 2)
        return;
    r->first = first;
    r->end = l->p->ninsns;
    for (uint32_t k = 0; k < 1u + a->pair; k++)
        r->microbatch[k] = microbatch_of(l, s, &a[k]);
}

/* the instruction's attribute `sample`, or NULL */
static struct attr *sample_of(struct program *p, const struct insn *n)
{
    const struct isa_info *info = isa_info(n->op);
    for (uint32_t k = 0; k < info->nattrs; k++)
        if (info->attr[k].kind == ATTR_BIND && !strcmp(info->attr[k].name, "sample"))
            return &p->attrs[n->attr + k];
    return NULL;
}

/* Appends instruction i again, for another microbatch. */
static void repeat_insn(struct lower *l, uint32_t i, uint32_t microbatch)
{
    struct program *p = l->p;
    uint32_t moved = microbatch - p->insns[i].microbatch;
    bool samples = sample_of(p, &p->insns[i]) != NULL;
    uint32_t copy = samples ? program_insn(p, p->insns[i].op) : program_repeat(p, i);
    struct insn *n = &p->insns[copy];
    const struct insn *from = &p->insns[i];
    if (samples) {
        const struct isa_info *info = isa_info(from->op);
        uint32_t operand = n->operand, attr = n->attr;
        memcpy(p->operands + operand, p->operands + from->operand, info->noperands * sizeof *p->operands);
        memcpy(p->attrs + attr, p->attrs + from->attr, info->nattrs * sizeof *p->attrs);
        *n = *from;
        n->operand = operand;
        n->attr = attr;
        sample_of(p, n)->u.i += (int64_t)(int32_t)moved * l->d->microbatch;
    }
    n->microbatch = microbatch;
    vec_push(l->arena, &l->channels, l->channels.at[i]);
}

bool lower_repeat(struct lower *l, const struct schedule *s, const struct action *a)
{
    struct repeat *r = find_repeat(l, a);
    if (r->seen < 2 || !is_regular(l, a))
        return false;
    uint32_t stage = chunk_of(l, a)->stage_index, microbatch[2] = {0};
    for (uint32_t k = 0; k < 1u + a->pair; k++) {
        microbatch[k] = microbatch_of(l, s, &a[k]);
        if (a[k].kind == 'B' || a[k].kind == 'W')
            chunk_of(l, &a[k])->left--;
    }
    while (l->channels.n < l->p->ninsns)
        vec_push(l->arena, &l->channels, NONE);
    for (uint32_t i = r->first; i < r->end; i++) {
        const struct insn *n = &l->p->insns[i];
        bool second = a->pair && (n->action != a->kind || n->stage != stage);
        repeat_insn(l, i, n->microbatch == NONE ? NONE : microbatch[second]);
    }
    return true;
}
