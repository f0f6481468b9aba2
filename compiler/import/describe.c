/* Text of the model language from a described model.  Arguments at their defaults are left out; layers that repeat,
 * alone or in a pattern, are written once. */

#include "compiler/import/describe.h"

#include "compiler/support/strbuf.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { INDENT = 4, LONGEST_PATTERN = 64, USUAL_SEQUENCE = 4096 };

/* one more argument of a call whose parenthesis is open */
static void argument(struct strbuf *b, const char *name, const char *value)
{
    bool first = b->text[b->length - 1] == '(';
    strbuf_printf(b, "%s%s=%s", first ? "" : ", ", name, value);
}

static void number(struct strbuf *b, double value)
{
    if (value > 1e15 || value != floor(value)) {
        strbuf_json_number(b, value);
        char *zero = strstr(b->text, "e-0");
        if (zero)
            memmove(zero + 2, zero + 3, strlen(zero + 2));
        b->length -= zero != NULL;
        return;
    }
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%.0f", value);
    for (int i = 0; i < n; i++) {
        if (i && n > 4 && (n - i) % 3 == 0)
            strbuf_char(b, '_');
        strbuf_char(b, digits[i]);
    }
}

const char *describe_number(struct arena *a, double value)
{
    struct strbuf b = {0};
    number(&b, value);
    const char *text = arena_strdup(a, b.text);
    strbuf_free(&b);
    return text;
}

static void real(struct strbuf *b, const char *name, double value, double usual)
{
    struct strbuf text = {0};
    number(&text, value);
    if (value != usual)
        argument(b, name, text.text);
    strbuf_free(&text);
}

static void count(struct strbuf *b, const char *name, uint32_t value)
{
    real(b, name, value, 0);
}

static void flag(struct strbuf *b, const char *name, bool value)
{
    if (value)
        argument(b, name, "yes");
}

static void close_call(struct strbuf *b)
{
    if (b->text[b->length - 1] == '(')
        b->text[--b->length] = 0;
    else
        strbuf_char(b, ')');
}

static void write_rope(struct strbuf *b, const struct described_rope *r)
{
    if (r->theta == 0)
        return;
    if (!r->dims && !r->adjacent && !r->scaling) {
        real(b, "rope", r->theta, 0);
        return;
    }
    struct strbuf call = {0};
    strbuf_text(&call, "rotary(");
    real(&call, "theta", r->theta, 0);
    count(&call, "dims", r->dims);
    if (r->adjacent)
        argument(&call, "pairs", "adjacent");
    if (r->scaling)
        argument(&call, "scaling", r->scaling);
    close_call(&call);
    argument(b, "rope", call.text);
    strbuf_free(&call);
}

static void write_attention(struct strbuf *b, const struct described *m, const struct described_attention *x)
{
    if (x->mla) {
        strbuf_text(b, "attn mla(");
        count(b, "heads", x->heads);
        count(b, "q_rank", x->q_rank);
        count(b, "kv_rank", x->kv_rank);
        count(b, "nope", x->nope);
        count(b, "rope", x->rope_dims);
        count(b, "v", x->v);
        real(b, "theta", x->rope.theta, 10000);
        if (x->rope.scaling)
            argument(b, "scaling", x->rope.scaling);
        close_call(b);
        return;
    }
    bool all = x->kv == x->heads, usual = x->head && x->heads && m->width % x->heads == 0;
    strbuf_text(b, all ? "attn mha(" : "attn gqa(");
    count(b, "heads", x->heads);
    count(b, "kv", all ? 0 : x->kv);
    count(b, "head", usual && x->head == m->width / x->heads ? 0 : x->head);
    write_rope(b, &x->rope);
    flag(b, "bias", x->bias);
    flag(b, "qkv_bias", x->qkv_bias && !x->bias);
    if (x->qk_norm)
        argument(b, "qk_norm", x->qk_norm);
    count(b, "window", x->window);
    real(b, "softcap", x->softcap, 0);
    real(b, "scale", x->scale, 0);
    flag(b, "sinks", x->sinks);
    flag(b, "alibi", x->alibi);
    close_call(b);
}

static void write_ffn(struct strbuf *b, const struct described_ffn *x)
{
    bool gelu = strstr(x->kind, "ge") != NULL; /* gelu and geglu have two forms */
    strbuf_printf(b, "%s(", x->kind);
    number(b, x->width);
    flag(b, "bias", x->bias);
    if (gelu && x->exact)
        argument(b, "approx", "none");
    real(b, "limit", x->limit, 0);
    real(b, "alpha", x->alpha, 0);
    real(b, "offset", x->offset, 0);
    strbuf_char(b, ')');
}

static void write_router(struct strbuf *b, const struct described_layer *l)
{
    strbuf_text(b, l->sigmoid ? "sigmoid(" : "softmax(");
    count(b, "groups", l->groups > 1 ? l->groups : 0);
    count(b, "pick", l->groups > 1 ? l->pick : 0);
    if (l->plain)
        argument(b, "normalize", "no");
    flag(b, "bias", l->router_bias);
    if (l->router_bias)
        real(b, "rate", l->router_rate > 0 ? l->router_rate : 1e-3, 1e-3);
    flag(b, "linear_bias", l->linear_bias);
    real(b, "scale", l->router_scale > 0 ? l->router_scale : 1, 1);
    close_call(b);
}

/* a statement of an moe block; 0: its default */
static void statement(struct strbuf *b, const char *word, double value)
{
    if (value > 0) {
        strbuf_printf(b, "\n        %s ", word);
        number(b, value);
    }
}

static char *layer_text(struct arena *a, const struct described *m, const struct described_layer *l)
{
    struct strbuf b = {0};
    if (m->parallel)
        strbuf_printf(&b, "layer parallel(norms=%u) {\n    ", m->parallel);
    else
        strbuf_text(&b, "layer {\n    ");
    write_attention(&b, m, &l->attention);
    strbuf_text(&b, l->experts ? "\n    moe  " : "\n    ffn  ");
    write_ffn(&b, &l->ffn);
    if (l->experts) {
        strbuf_printf(&b, " {\n        experts %u\n        active  %u\n", l->experts, l->active);
        if (l->shared)
            strbuf_printf(&b, "        shared  %u\n", l->shared);
        strbuf_text(&b, "        router  ");
        write_router(&b, l);
        statement(&b, "capacity", l->capacity);
        statement(&b, "balance ", l->balance);
        strbuf_text(&b, "\n    }");
    }
    strbuf_text(&b, "\n}\n");
    char *text = arena_strdup(a, b.text);
    strbuf_free(&b);
    return text;
}

static void indented(struct strbuf *b, const char *text, uint32_t depth)
{
    for (const char *end; *text; text = end + 1) {
        end = strchr(text, '\n');
        strbuf_repeat(b, ' ', (size_t)depth * INDENT);
        strbuf_bytes(b, text, (size_t)(end - text) + 1);
    }
}

/* How often the first p of n texts follow one another from the start. */
static uint32_t times(char *const *text, uint32_t n, uint32_t p)
{
    uint32_t same = p;
    while (same < n && !strcmp(text[same], text[same % p]))
        same++;
    return same / p;
}

static void write_layers(struct strbuf *b, char *const *text, uint32_t n, uint32_t depth)
{
    for (uint32_t i = 0; i < n;) {
        uint32_t period = 1, repeats = 1;
        for (uint32_t p = 1; p <= (n - i) / 2 && p <= LONGEST_PATTERN; p++) {
            uint32_t c = times(text + i, n - i, p);
            if (c > 1 && c * p > (repeats > 1 ? repeats * period : 0)) {
                period = p;
                repeats = c;
            }
        }
        if (repeats == 1) {
            indented(b, text[i++], depth);
            continue;
        }
        strbuf_repeat(b, ' ', (size_t)depth * INDENT);
        strbuf_printf(b, "repeat %u {\n", repeats);
        write_layers(b, text + i, period, depth + 1);
        strbuf_repeat(b, ' ', (size_t)depth * INDENT);
        strbuf_text(b, "}\n");
        i += repeats * period;
    }
}

static void write_norm(struct strbuf *b, const struct described *m)
{
    strbuf_text(b, m->layernorm ? "    norm  layernorm(" : "    norm  rmsnorm(");
    real(b, "eps", m->eps, 1e-5);
    if (m->layernorm && !m->norm_bias)
        argument(b, "bias", "no");
    if (m->place)
        argument(b, "place", m->place);
    close_call(b);
    strbuf_text(b, "\n\n");
}

static void write_embedding(struct strbuf *b, const struct described *m)
{
    strbuf_text(b, "    embed tokens(");
    flag(b, "scale", m->embed_scale);
    real(b, "scale", m->embed_factor, 0);
    flag(b, "norm", m->embed_norm);
    close_call(b);
    strbuf_char(b, '\n');
    if (m->positions)
        strbuf_printf(b, "    embed positions(%u)\n", m->positions);
}

static void write_head(struct strbuf *b, const struct described *m)
{
    if (m->predict)
        strbuf_printf(b, "    predict %u ahead", m->predict);
    if (m->predict && m->predict_weight > 0 && m->predict_weight != 0.3) {
        strbuf_text(b, " {\n        weight ");
        number(b, m->predict_weight);
        strbuf_text(b, "\n    }");
    }
    if (m->predict)
        strbuf_char(b, '\n');
    strbuf_text(b, m->tied ? "    head tied(" : "    head untied(");
    real(b, "softcap", m->head_softcap, 0);
    real(b, "scale", m->head_scale > 0 ? m->head_scale : 1, 1);
    flag(b, "bias", m->head_bias);
    close_call(b);
    strbuf_text(b, "\n}\n");
}

static void write_block(struct strbuf *b, const char *name, const char *statements)
{
    strbuf_printf(b, "\n%s {\n", name);
    indented(b, statements, 1);
    strbuf_text(b, "}\n");
}

char *describe(struct arena *a, const struct described *m, const char *const *notes, size_t nnotes)
{
    struct strbuf b = {0};
    char **layers = ARENA_ARRAY(a, char *, m->nlayers + 1u);
    strbuf_text(&b, "llmc 1\n\n");
    for (size_t i = 0; i < nnotes; i++)
        strbuf_printf(&b, "# %s\n", notes[i]);
    strbuf_printf(&b, "model %s {\n    vocab ", m->name);
    number(&b, m->vocab);
    strbuf_text(&b, "\n    width ");
    number(&b, m->width);
    strbuf_char(&b, '\n');
    write_norm(&b, m);
    write_embedding(&b, m);
    for (uint32_t i = 0; i < m->nlayers; i++)
        layers[i] = layer_text(a, m, &m->layers[i]);
    write_layers(&b, layers, m->nlayers, 1);
    write_head(&b, m);
    if (m->train)
        write_block(&b, "train", m->train);
    else
        strbuf_printf(&b,
                      "\ntrain {                  # a start; a configuration does not say how the model is trained\n"
                      "    sequence  %u\n    batch     1024 sequences\n    precision bf16\n}\n",
                      m->sequence && m->sequence < USUAL_SEQUENCE ? m->sequence : USUAL_SEQUENCE);
    if (m->plan)
        write_block(&b, "plan", m->plan);
    char *text = arena_strdup(a, b.text);
    strbuf_free(&b);
    return text;
}
