/* Values that stay from the forward pass to the backward pass, and operators that run again in front of it.
 *
 * Norms, products and activations read their input, attention its input and output, the loss its logits.  What
 * recomputation names is not kept but made again, from values that are. */

#include "compiler/model/backward.h"

#include <string.h>

bool backward_reads_input(const struct opr *o)
{
    return opr_info(o->kind)->reads & OPR_IN;
}

bool backward_reads_output(const struct opr *o)
{
    return opr_info(o->kind)->reads & OPR_OUT;
}

bool backward_act_only(const struct opr *o, uint32_t again)
{
    return o->kind == OPR_EXPERTS && !(again & PART_MOE);
}

bool backward_names(const struct expansion *e, const struct opr *o, uint32_t again)
{
    bool named = opr_word(o) & again;
    for (uint32_t i = 0; i < e->noprs && !named && o->out != UINT32_MAX; i++)
        named = e->oprs[i].out == o->out && opr_word(&e->oprs[i]) & again;
    return named;
}

/* Operators that may run again, and the values that are then not kept.  Attention that runs again keeps its output: the
 * product behind it reads that, and what goes are its statistics. */
static void find_again(const struct expansion *e, uint32_t parts, bool exchanges, bool *again, bool *dropped)
{
    for (uint32_t i = 0; i < e->noprs; i++) {
        const struct opr *o = &e->oprs[i];
        again[i] = i < e->again && (parts == BACKWARD_RUN_ALL || opr_word(o) & parts);
        bool inside = (o->kind == OPR_ATTENTION && parts != BACKWARD_RUN_ALL && !exchanges) ||
                      backward_act_only(o, parts);
        if (again[i] && o->out != UINT32_MAX && !inside)
            dropped[o->out] = true;
    }
    for (uint32_t i = 0; i < e->noprs; i++)
        again[i] |= e->oprs[i].out != UINT32_MAX && dropped[e->oprs[i].out];
    dropped[0] = false;
}

const bool *backward_dropped(struct arena *a, const struct expansion *e, uint32_t again, bool exchanges)
{
    bool *runs = ARENA_ARRAY(a, bool, e->noprs + 1u), *dropped = ARENA_ARRAY(a, bool, e->nvalues + 1u);
    find_again(e, again, exchanges, runs, dropped);
    return dropped;
}

uint32_t backward_again(enum recompute recompute, uint32_t parts)
{
    return recompute == RECOMPUTE_FULL ? BACKWARD_RUN_ALL : recompute == RECOMPUTE_SELECTIVE ? parts : 0;
}

struct backward backward_new(struct arena *a, const struct expansion *e, uint32_t again, bool exchanges)
{
    struct backward b = {.saved = ARENA_ARRAY(a, bool, e->nvalues),
                         .needed = ARENA_ARRAY(a, bool, e->noprs + 1u),
                         .unread = ARENA_ARRAY(a, bool, e->noprs + 1u),
                         .weighed = ARENA_ARRAY(a, bool, e->nvalues),
                         .weighs = ARENA_ARRAY(a, bool, e->nvalues)};
    bool *want = ARENA_ARRAY(a, bool, e->nvalues), *dropped = ARENA_ARRAY(a, bool, e->nvalues);
    bool *runs = ARENA_ARRAY(a, bool, e->noprs + 1u);
    find_again(e, again, exchanges, runs, dropped);
    for (uint32_t i = e->noprs; i-- > 0;) {
        const struct opr *o = &e->oprs[i];
        bool input = backward_reads_input(o) && !(o->kind == OPR_ATTENTION && exchanges), late = expand_puts_off(e, o);
        if (late && o->out != UINT32_MAX)
            b.weighed[o->out] = true;
        if (late && o->in[0] != UINT32_MAX)
            b.weighs[o->in[0]] = true;
        bool read = backward_reads_output(o) || (o->out != UINT32_MAX && want[o->out]);
        b.needed[i] = runs[i] && (read || opr_info(o->kind)->beside);
        b.unread[i] = b.needed[i] && !read;
        b.recompute |= b.needed[i];
        if (backward_reads_output(o))
            want[o->out] = true;
        for (uint32_t k = 0; k < 2; k++)
            if (o->in[k] != UINT32_MAX)
                want[o->in[k]] |= input || b.needed[i];
    }
    for (uint32_t v = 0; v < e->nvalues; v++)
        b.saved[v] = want[v] && !dropped[v];
    return b;
}

uint8_t *backward_eight(struct arena *a, const struct expansion *e)
{
    uint8_t *parts = ARENA_ARRAY(a, uint8_t, e->nvalues + 1u);
    bool *whole = ARENA_ARRAY(a, bool, e->nvalues + 1u); /* must stay as it is */
    whole[0] = true;
    if (e->result != UINT32_MAX)
        whole[e->result] = true;
    for (uint32_t i = 0; i < e->noprs; i++) {
        const struct opr *o = &e->oprs[i];
        bool inner = strcmp(o->name, "head") && strcmp(o->name, "predict.project"); /* of a layer */
        bool eight = (o->kind == OPR_LINEAR && inner) || o->kind == OPR_ROUTER || o->kind == OPR_ACT;
        bool gates = o->kind == OPR_ACT && (o->ffn->act == ACT_SWIGLU || o->ffn->act == ACT_GEGLU);
        if (o->in[0] != UINT32_MAX && eight && parts[o->in[0]] < 1 + gates)
            parts[o->in[0]] = (uint8_t)(1 + gates);
        for (uint32_t k = 0; k < 2; k++)
            if (o->in[k] != UINT32_MAX && ((backward_reads_input(o) && !eight) || o->in[k] == o->out))
                whole[o->in[k]] = true;
        if (backward_reads_output(o))
            whole[o->out] = true;
    }
    for (uint32_t v = 0; v < e->nvalues; v++)
        parts[v] = whole[v] ? 0 : parts[v];
    return parts;
}

bool backward_reruns_eight(const struct expansion *e, const struct backward *b, const uint8_t *eight, uint32_t again)
{
    for (uint32_t i = 0; i < e->noprs; i++)
        for (uint32_t k = 0; k < 2; k++) {
            uint32_t v = e->oprs[i].in[k];
            bool inside = backward_act_only(&e->oprs[i], again) || e->oprs[i].kind == OPR_ACT;
            if (b->needed[i] && !inside && v != UINT32_MAX && b->saved[v] && eight[v])
                return true;
        }
    return false;
}
