/* The decision's written forms: Megatron's layout string and the JSON object of plan.json.
 *
 * Layout grammar as Megatron-LM reads it (pipeline_parallel_layer_layout): E t m L elements, `x*N` repeats an
 * element or a parenthesised group, `|` ends a stage, commas and blanks are ignored; stages come in model
 * order.  It is expanded into one flat string first, bounded by what a model can have, so that nothing in it
 * can grow without limit. JSON is read with jansson and checked key by key; decision_legal() judges what it
 * says. */

#include "compiler/model/decision.h"
#include "compiler/support/strbuf.h"

#include <ctype.h>
#include <jansson.h>
#include <string.h>

#define LAYOUT_MOST 100000 /* elements and stage marks after expansion */

#define REFUSE(...)                                                                                                    \
    do {                                                                                                               \
        *why = arena_printf(a, __VA_ARGS__);                                                                           \
        return false;                                                                                                  \
    } while (0)

static void stage_text(const struct stage *st, struct strbuf *b)
{
    strbuf_text(b, st->embed ? "E" : "");
    if (st->count)
        strbuf_text(b, "t");
    if (st->count > 1)
        strbuf_printf(b, "*%u", st->count);
    strbuf_text(b, st->head ? "L" : "");
}

static bool same_stage(const struct stage *x, const struct stage *y)
{
    return x->count == y->count && x->embed == y->embed && x->head == y->head;
}

/* equal stages in a row, from three on, as (stage|)*N where short is asked for */
static char *layout_text(struct arena *a, const struct decision *d, bool shorten)
{
    struct strbuf b = {0};
    strbuf_text(&b, "");
    for (uint32_t s = 0, run; s < d->nstages; s += run) {
        for (run = 1; s + run < d->nstages && same_stage(&d->stages[s], &d->stages[s + run]);)
            run++;
        if (!shorten || run < 3 || s + run == d->nstages)
            run = 1;
        strbuf_text(&b, run > 1 ? "(" : "");
        stage_text(&d->stages[s], &b);
        if (run > 1)
            strbuf_printf(&b, "|)*%u", run);
        else if (s + 1 < d->nstages)
            strbuf_text(&b, "|");
    }
    char *text = arena_strdup(a, b.text);
    strbuf_free(&b);
    return text;
}

char *decision_layout(struct arena *a, const struct decision *d)
{
    return layout_text(a, d, false);
}

char *decision_layout_short(struct arena *a, const struct decision *d)
{
    return layout_text(a, d, true);
}

/* `*N` behind an element or group; 1 without it */
static bool read_repeat(const char **p, uint32_t *times)
{
    *times = 1;
    if (**p != '*')
        return true;
    ++*p;
    if (!isdigit((unsigned char)**p))
        return false;
    uint64_t n = 0;
    for (; isdigit((unsigned char)**p); ++*p)
        if ((n = n * 10 + (uint64_t)(**p - '0')) > LAYOUT_MOST)
            return false;
    *times = (uint32_t)n;
    return true;
}

/* the group that ends here, `times` over; false when it grows beyond the limit */
static bool repeat_tail(struct strbuf *flat, size_t start, uint32_t times)
{
    size_t length = flat->length - start;
    if (times == 0) {
        flat->length = start;
        flat->text[start] = 0;
        return true;
    }
    if (start + (uint64_t)length * times > LAYOUT_MOST)
        return false;
    for (uint32_t i = 1; i < times; i++)
        for (size_t k = 0; k < length; k++)
            strbuf_char(flat, flat->text[start + k]);
    return true;
}

static bool layout_expand(struct arena *a, const char *layout, struct strbuf *flat, const char **why)
{
    size_t open = SIZE_MAX, start;
    strbuf_text(flat, "");
    for (const char *p = layout; *p;) {
        char c = *p++;
        if (c == ',' || c == ' ')
            continue;
        if (c == '(') {
            if (open != SIZE_MAX)
                REFUSE("the layout nests parentheses");
            open = flat->length;
            continue;
        }
        if (c == ')') {
            if (open == SIZE_MAX)
                REFUSE("the layout closes a parenthesis that is not open");
            start = open;
            open = SIZE_MAX;
        } else if (strchr("EtmL|", c)) {
            start = flat->length;
            strbuf_char(flat, c);
        } else {
            REFUSE("the layout has '%c'; E, t, m, L, |, *N and parentheses are known", c);
        }
        uint32_t times;
        if (!read_repeat(&p, &times) || !repeat_tail(flat, start, times))
            REFUSE("a repeat count in the layout is missing or too large");
    }
    if (open != SIZE_MAX)
        REFUSE("the layout does not close a parenthesis");
    return true;
}

static bool layout_stages(struct arena *a, struct decision *d, uint32_t nlayers, const char *flat, const char **why)
{
    uint32_t nstages = 1, stage = 0, layer = 0;
    for (const char *p = flat; *p; p++)
        nstages += *p == '|';
    struct stage *stages = ARENA_ARRAY(a, struct stage, nstages);
    bool embed = false, head = false;
    for (const char *p = flat; *p; p++) {
        struct stage *st = &stages[stage];
        if (head && *p != '\0')
            REFUSE("L must be the last element of the layout");
        if (!embed && *p != 'E')
            REFUSE("the layout must start with E");
        if (*p == '|')
            stages[++stage].first = layer;
        else if (*p == 't')
            layer++, st->count++;
        else if (*p == 'L')
            st->head = head = true;
        else if (*p == 'E' && embed)
            REFUSE("the layout has a second E");
        else if (*p == 'E')
            st->embed = embed = true;
        else if (*p == 'm' && strchr(p, '|'))
            REFUSE("prediction modules (m) are planned in the last stage only");
    }
    if (!head)
        REFUSE("the layout must end with L");
    if (layer != nlayers)
        REFUSE("the layout has %u layers, the model %u", layer, nlayers);
    d->nstages = nstages;
    d->stages = stages;
    return true;
}

bool decision_parse_layout(struct arena *a, struct decision *d, uint32_t nlayers, const char *layout, const char **why)
{
    struct strbuf flat = {0};
    bool good = layout_expand(a, layout, &flat, why) && layout_stages(a, d, nlayers, flat.text, why);
    strbuf_free(&flat);
    return good;
}

/* runs of consecutive node indices as [first, count] */
static void nodes_json(const struct decision *d, struct strbuf *out)
{
    strbuf_text(out, "[");
    for (uint32_t i = 0, n; i < d->nnodes; i += n) {
        for (n = 1; i + n < d->nnodes && d->nodes[i + n] == d->nodes[i] + n;)
            n++;
        strbuf_json(out, i ? ", [%u, %u]" : "[%u, %u]", d->nodes[i], n);
    }
    strbuf_text(out, "]");
}

/* those of the n words whose bit is set */
static void words_json(const char *const *words, int n, uint32_t bits, struct strbuf *out)
{
    const char *separator = "[";
    for (int i = 0; i < n; i++)
        if (bits & 1u << i) {
            strbuf_text(out, separator);
            strbuf_json_string(out, words[i]);
            separator = ", ";
        }
    strbuf_text(out, *separator == '[' ? "[]" : "]");
}

static void recompute_json(const struct decision *d, struct strbuf *out)
{
    strbuf_json(out, "'recompute': %s, 'recompute_detail': ", recompute_names[d->recompute]);
    words_json(recompute_part_names, 8, d->parts, out);
    if (d->recompute_layers)
        strbuf_json(out, ", 'recompute_layers': %u", d->recompute_layers);
    uint32_t spared = 0;
    for (uint32_t s = 0; s < d->nstages; s++)
        spared += d->stages[s].spared;
    if (!spared || d->recompute_layers)
        return;
    for (uint32_t s = 0; s < d->nstages; s++) /* layers run again, by stage */
        strbuf_json(out, s ? ", %u" : ", 'recompute_stages': [%u", d->stages[s].count - d->stages[s].spared);
    strbuf_text(out, "]");
}

void decision_json(const struct job *job, const struct decision *d, struct strbuf *out)
{
    static const char *const offloads[] = {"optimizer", "activations"}; /* by bit of enum offload_part */
    struct arena *a = arena_new();
    strbuf_json(out,
                "{'tp': %u, 'sp': %d, 'cp': %u, 'pp': %u, 'vpp': %u, 'dp': %u, 'ep': %u, 'etp': %u, 'zero': %u, "
                "'shard': %u, 'microbatch': %u, 'microbatches': %u, ",
                d->tp, d->sp, d->cp, d->pp, d->vpp, d->dp, d->ep, d->etp, d->zero, d->shard, d->microbatch,
                d->microbatches);
    recompute_json(d, out);
    strbuf_json(out, ", 'schedule': %s, 'schedule_group': ", schedule_name(d->schedule));
    strbuf_json(out, d->schedule_group ? "%u" : "null", d->schedule_group);
    strbuf_text(out, d->folds ? ", \"folded\": true" : "");
    strbuf_json(out, ", 'layout': %s, 'context': %s, 'order': [%s, %s, %s, %s], 'offload': ", decision_layout(a, d),
                d->cp > 1 ? context_names[d->context] : NULL, axis_names[d->order[0]], axis_names[d->order[1]],
                axis_names[d->order[2]], axis_names[d->order[3]]);
    words_json(offloads, 2, job->wishes.offload, out);
    strbuf_json(out, d->prefetch ? ", 'prefetch': %u" : ", 'prefetch': null", d->prefetch);
    if (d->ep_nodes > 1)
        strbuf_json(out, ", 'expert_nodes': %u", d->ep_nodes);
    if (d->room > 0)
        strbuf_printf(out, ", \"expert_room\": %.17g", d->room);
    if (decision_skews(job, d))
        strbuf_text(out, ", \"post_validation\": true");
    strbuf_json(out, ", 'node_type': %u, 'nodes': ", d->type);
    nodes_json(d, out);
    strbuf_text(out, "}");
    arena_free(a);
}

static bool json_u32(struct arena *a, const json_t *o, const char *key, uint32_t *out, const char **why)
{
    const json_t *v = json_object_get(o, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > UINT32_MAX)
        REFUSE("decision: '%s' must be a whole number", key);
    *out = (uint32_t)json_integer_value(v);
    return true;
}

/* index of a word in a table of names */
static bool json_word(struct arena *a, const json_t *v, const char *key, const char *const *names, uint32_t n,
                      uint32_t *out, const char **why)
{
    const char *word = json_string_value(v);
    for (uint32_t i = 0; word && i < n; i++)
        if (strcmp(word, names[i]) == 0) {
            *out = i;
            return true;
        }
    REFUSE("decision: '%s' has an unknown value", key);
}

static bool json_words(struct arena *a, const json_t *o, struct decision *d, const char **why)
{
    const char *schedules[NSCHEDULES];
    for (uint32_t i = 0; i < NSCHEDULES; i++)
        schedules[i] = schedule_name((enum schedule_kind)i);
    uint32_t recompute, schedule, context = CONTEXT_AUTO;
    if (!json_word(a, json_object_get(o, "recompute"), "recompute", recompute_names, 3, &recompute, why) ||
        !json_word(a, json_object_get(o, "schedule"), "schedule", schedules, NSCHEDULES, &schedule, why))
        return false;
    const json_t *v = json_object_get(o, "context");
    if (v && !json_is_null(v) && !json_word(a, v, "context", context_names, 4, &context, why))
        return false;
    d->recompute = (enum recompute)recompute;
    d->schedule = (enum schedule_kind)schedule;
    d->context = (enum context_kind)context;
    d->folds = json_is_true(json_object_get(o, "folded"));
    v = json_object_get(o, "recompute_detail");
    for (size_t i = 0; i < json_array_size(v); i++) {
        uint32_t bit;
        if (!json_word(a, json_array_get(v, i), "recompute_detail", recompute_part_names, 8, &bit, why))
            return false;
        d->parts |= 1u << bit;
    }
    v = json_object_get(o, "order");
    if (json_array_size(v) != NAXES)
        REFUSE("decision: 'order' must list four axes");
    for (size_t i = 0; i < NAXES; i++) {
        uint32_t axis;
        if (!json_word(a, json_array_get(v, i), "order", axis_names, NAXES, &axis, why))
            return false;
        d->order[i] = (enum axis)axis;
    }
    return true;
}

static bool json_nodes(struct arena *a, const json_t *o, const struct topo *topo, struct decision *d, const char **why)
{
    const json_t *v = json_object_get(o, "nodes");
    uint64_t total = 0;
    for (int pass = 0; pass < 2; pass++) {
        uint32_t *nodes = pass ? ARENA_ARRAY(a, uint32_t, total) : NULL;
        uint64_t at = 0;
        for (size_t i = 0; i < json_array_size(v); i++) {
            json_int_t first = json_integer_value(json_array_get(json_array_get(v, i), 0));
            json_int_t count = json_integer_value(json_array_get(json_array_get(v, i), 1));
            if (first < 0 || count < 1 || first > topo->nnodes || count > topo->nnodes - first ||
                (uint64_t)count > topo->nnodes - at)
                REFUSE("decision: 'nodes' lists nodes that the cluster does not have");
            for (json_int_t k = 0; nodes && k < count; k++)
                nodes[at + (uint64_t)k] = (uint32_t)(first + k);
            at += (uint64_t)count;
        }
        total = at;
        d->nodes = nodes;
    }
    d->nnodes = (uint32_t)total;
    return true;
}

static bool json_spared(struct arena *a, const json_t *list, struct decision *d, const char **why)
{
    decision_spare(d);
    if (list && json_array_size(list) != d->nstages)
        REFUSE("decision: 'recompute_stages' must have one number for each of the %u stages", d->nstages);
    for (uint32_t s = 0; list && s < d->nstages; s++) {
        const json_t *v = json_array_get(list, s);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > d->stages[s].count)
            REFUSE("decision: 'recompute_stages' must count layers of its stage");
        d->stages[s].spared = d->stages[s].count - (uint32_t)json_integer_value(v);
    }
    return true;
}

static bool json_decision(struct arena *a, const json_t *o, const struct job *job, const struct topo *topo,
                          struct decision *d, const char **why)
{
    const char *const keys[] = {"tp",  "cp",   "pp",    "vpp",        "dp",           "ep",
                                "etp", "zero", "shard", "microbatch", "microbatches", "node_type"};
    uint32_t *const fields[] = {&d->tp,  &d->cp,   &d->pp,    &d->vpp,        &d->dp,           &d->ep,
                                &d->etp, &d->zero, &d->shard, &d->microbatch, &d->microbatches, &d->type};
    if (!json_is_object(o))
        REFUSE("decision: not an object");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!json_u32(a, o, keys[i], fields[i], why))
            return false;
    if (!json_is_boolean(json_object_get(o, "sp")))
        REFUSE("decision: 'sp' must be true or false");
    d->sp = json_is_true(json_object_get(o, "sp"));
    if (json_is_integer(json_object_get(o, "recompute_layers")) &&
        !json_u32(a, o, "recompute_layers", &d->recompute_layers, why))
        return false;
    if (json_is_integer(json_object_get(o, "schedule_group")) &&
        !json_u32(a, o, "schedule_group", &d->schedule_group, why))
        return false;
    if (json_is_integer(json_object_get(o, "prefetch")) && !json_u32(a, o, "prefetch", &d->prefetch, why))
        return false;
    d->ep_nodes = 1;
    if (json_object_get(o, "expert_nodes") && !json_u32(a, o, "expert_nodes", &d->ep_nodes, why))
        return false;
    d->room = json_number_value(json_object_get(o, "expert_room"));
    const char *layout = json_string_value(json_object_get(o, "layout"));
    if (!layout)
        REFUSE("decision: 'layout' is missing");
    if (!json_words(a, o, d, why) || !json_nodes(a, o, topo, d, why) ||
        !decision_parse_layout(a, d, job->model.nlayers, layout, why))
        return false;
    if (!json_spared(a, json_object_get(o, "recompute_stages"), d, why))
        return false;
    uint64_t gpus = (uint64_t)d->tp * d->cp, most = UINT32_MAX;
    if (gpus > most || (gpus *= d->pp) > most || (gpus *= d->dp) > most)
        REFUSE("decision: too many ranks");
    d->gpus_used = (uint32_t)gpus;
    return decision_legal(a, job, topo, d, why);
}

bool decision_from_json(struct arena *a, const char *json, size_t size, const struct job *job, const struct topo *topo,
                        struct decision *d, const char **why)
{
    json_error_t error;
    json_t *o = json_loadb(json, size, JSON_REJECT_DUPLICATES, &error);
    if (!o)
        REFUSE("decision: line %d: %s", error.line, error.text);
    *d = (struct decision){0};
    bool good = json_decision(a, o, job, topo, d, why);
    json_decref(o);
    return good;
}
