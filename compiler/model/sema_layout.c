/* The plan's layout: E embedding, t layer, m prediction module (before L where none is written, as plans print it),
 * L loss; `|` between chunks, `*N` repeats the letter or the group before it, commas separate for the eye
 * (Megatron-LM's pipeline_model_parallel_layout). */

#include "compiler/model/check.h"
#include "compiler/support/vec.h"

#include <inttypes.h>
#include <string.h>

#define LAYOUT_MAX 100000
#define LAYOUT_DEPTH 8

struct letters {
    char *at;
    size_t n, room;
};

/* Append the expansion of s[0..n) to out; NULL, or what is wrong. */
static const char *layout_expand(struct arena *a, const char *s, size_t n, int depth, struct letters *out)
{
    for (size_t i = 0; i < n;) {
        size_t from = i, end = i + 1, inner = 1;
        if (s[i] == ',') {
            i++;
            continue;
        }
        if (s[i] == '(') {
            int open = 1;
            for (; open && end < n; end++)
                open += s[end] == '(' ? 1 : s[end] == ')' ? -1 : 0;
            if (open)
                return "'(' without ')'";
            inner = end - from - 2;
            from++;
        } else if (!strchr("EtmL|", s[i])) {
            return "a letter other than E t m L";
        }
        uint64_t times = 1;
        i = end;
        if (i < n && s[i] == '*') {
            size_t digits = strspn(s + i + 1, "0123456789");
            struct units_error why;
            if (i + 1 + digits > n || !units_count(s + i + 1, digits, &times, &why) || times > LAYOUT_MAX)
                return "'*' without a number up to 100,000";
            i += 1 + digits;
        }
        size_t before = out->n;
        for (uint64_t k = 0; k < times; k++) {
            const char *wrong = NULL;
            if (s[end - 1] == ')' && depth >= LAYOUT_DEPTH)
                return "groups nested too deeply";
            if (s[end - 1] == ')')
                wrong = layout_expand(a, s + from, inner, depth + 1, out);
            else
                vec_push(a, out, s[from]);
            if (wrong)
                return wrong;
            if (out->n == before)
                break;
            if (out->n > LAYOUT_MAX)
                return "more than 100,000 letters";
        }
    }
    return NULL;
}

/* letters to chunks; NULL, or what is wrong */
static const char *layout_chunks(struct arena *a, const struct letters *l, struct wishes *w)
{
    VEC(struct layout_chunk) chunks = {0};
    struct layout_chunk chunk = {0};
    bool empty = true;
    if (!l->n || l->at[0] != 'E' || l->at[l->n - 1] != 'L')
        return "it must start with E and end with L";
    for (size_t i = 0; i < l->n; i++) {
        char x = l->at[i];
        if ((x == 'E' && i) || (x == 'L' && i + 1 < l->n))
            return "E stands first and L last, once each";
        chunk.embedding |= x == 'E';
        chunk.loss |= x == 'L';
        chunk.layers += x == 't';
        chunk.predictions += x == 'm';
        if (x == '|' && empty)
            return "a chunk is empty";
        empty = x == '|';
        if (x == '|' || i + 1 == l->n) {
            vec_push(a, &chunks, chunk);
            chunk = (struct layout_chunk){0};
        }
    }
    w->chunks = chunks.at;
    w->nchunks = (uint32_t)chunks.n;
    return NULL;
}

void sema_layout(struct check *c, const struct binding *b, struct wishes *w)
{
    const struct value *v = &bound_find(b, "layout")->value;
    const struct model *m = &c->job->model;
    struct letters letters = {0};
    if (!bound_set(b, "layout"))
        return;
    w->layout = v->text;
    w->layout_span = v->span;
    const char *wrong = layout_expand(c->arena, v->text, strlen(v->text), 0, &letters);
    if (!wrong)
        wrong = layout_chunks(c->arena, &letters, w);
    if (wrong) {
        diag_error(c->diag, v->span, "layout", "layout: %s", wrong);
        return;
    }
    uint32_t layers = 0, predictions = 0;
    for (uint32_t i = 0; i < w->nchunks; i++) {
        layers += w->chunks[i].layers;
        predictions += w->chunks[i].predictions;
    }
    if (m->nlayers && layers != m->nlayers)
        diag_error(c->diag, v->span, "layout", "layout has %u layers, the model %u", layers, m->nlayers);
    else if (m->nlayers && predictions && predictions != m->predict)
        diag_error(c->diag, v->span, "layout", "layout has %u prediction modules, the model %u", predictions,
                   m->predict);
    const struct wish *pp = &w->degree[DEG_PP], *vpp = &w->degree[DEG_VPP];
    if (pp->relation == REL_EQ && vpp->relation == REL_EQ && pp->value * vpp->value != w->nchunks)
        diag_error(c->diag, v->span, "layout", "layout has %u chunks, not pp * vpp = %" PRIu64, w->nchunks,
                   pp->value * vpp->value);
    else if (pp->relation == REL_EQ && w->nchunks % pp->value)
        diag_error(c->diag, v->span, "layout", "layout has %u chunks, not a multiple of pp = %" PRIu64, w->nchunks,
                   pp->value);
}
