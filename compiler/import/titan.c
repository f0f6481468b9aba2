/* Configurations of torchtitan: what a file of either form says; see titan.def. */

#include "compiler/import/titan.h"

#include "compiler/import/fields.h"
#include "compiler/import/titan_private.h"
#include "compiler/import/toml.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEPTH = 32 };

static const struct arg_row rows[] = {
#define ARG(section, name, kind, names, otherwise, refused) {#section "." #name, names, otherwise, refused, ARG_##kind},
#define ELSEWHERE(names)
#include "compiler/import/titan.def"
#undef ARG
#undef ELSEWHERE
};
static const char *const elsewhere[] = {
#define ARG(section, name, kind, names, otherwise, refused)
#define ELSEWHERE(names) names,
#include "compiler/import/titan.def"
#undef ARG
#undef ELSEWHERE
};

/* sections that say nothing about a step */
static const char *const aside[] = {"job",       "profiling",    "profiler",          "metrics",     "checkpoint",
                                    "comm",      "loss",         "validation",        "validator",   "dataloader",
                                    "tokenizer", "experimental", "memory_estimation", "liger_kernel"};

static bool is_aside(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(aside); i++)
        if (!strncmp(name, aside[i], strlen(aside[i])) && (name[strlen(aside[i])] == '.' || !name[strlen(aside[i])]))
            return true;
    return false;
}

/* ---- JSON ---- */

static char *text_of(struct arena *a, const json_t *v)
{
    char *dumped = json_is_string(v) ? NULL : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    const char *text = json_is_string(v) ? json_string_value(v) : dumped ? dumped : "";
    char *copy = arena_strdup(a, text);
    free(dumped);
    for (char *c = copy; *c; c++)
        *c = *c == GIVEN_OPEN ? '?' : *c;
    return copy;
}

/* the words of a list with commas between them */
static char *joined(struct arena *a, const json_t *list)
{
    struct strbuf b = {0};
    strbuf_text(&b, "");
    for (size_t i = 0; i < json_array_size(list); i++)
        strbuf_printf(&b, "%s%s", i ? "," : "", text_of(a, json_array_get(list, i)));
    char *text = arena_strndup(a, b.text, b.length);
    strbuf_free(&b);
    return text;
}

static void setting(struct givens *g, const char *name, const char *last, const json_t *v)
{
    struct given x = {.name = name, .key = name, .span = fields_place(g->source, last)};
    if (json_is_array(v))
        for (size_t i = 0; i < json_array_size(v); i++) {
            const json_t *one = json_array_get(v, i);
            given_value(g, &x, json_is_array(one) ? joined(g->arena, one) : text_of(g->arena, one));
        }
    else if (!json_is_null(v))
        given_value(g, &x, text_of(g->arena, v));
    x.null = !x.n || (json_is_string(v) && !json_string_length(v)) || json_is_object(v); /* an empty one */
    vec_push(g->arena, &g->all, x);
}

/* the one group of parameters whose optimizer is every parameter's */
static void one_group(struct givens *g, json_t *groups)
{
    json_t *one = json_array_get(groups, 0), *value, *kwargs = json_object_get(one, "optimizer_kwargs");
    const char *name;
    if (json_array_size(groups) != 1) {
        setting(g, "optimizer.param_groups", "param_groups", groups);
        return;
    }
    setting(g, "optimizer.name", "optimizer_name", json_object_get(one, "optimizer_name"));
    json_object_foreach(kwargs, name, value) setting(g, arena_printf(g->arena, "optimizer.%s", name), name, value);
}

static void flatten(struct givens *g, json_t *object, const char *path, int depth)
{
    const char *last;
    json_t *value;
    if (depth > MOST_DEPTH) {
        diag_error(g->diag, (struct span){g->source, 0, 1}, "json", "objects are nested too deep");
        return;
    }
    json_object_foreach(object, last, value)
    {
        const char *name = *path ? arena_printf(g->arena, "%.1000s.%.200s", path, last) : arena_strdup(g->arena, last);
        if (is_aside(name) || !strcmp(name, "model_spec.model"))
            continue; /* the model is read by its name */
        if (!strcmp(name, "optimizer.param_groups"))
            one_group(g, value);
        else if (json_is_object(value) && json_object_size(value))
            flatten(g, value, name, depth + 1);
        else
            setting(g, name, last, value);
    }
}

/* What distinguishes the policies of activation checkpointing in what is written of them. */
static void policy(struct givens *g, json_t *root)
{
    json_t *at = json_object_get(root, "activation_checkpoint");
    const char *mode = json_object_get(at, "force_recompute_mm_shapes_by_fqns") ? "selective"
                       : json_is_object(at)                                     ? "full"
                                                                                : "none";
    struct given x = {.name = "activation_checkpoint", .key = "activation_checkpoint.mode"};
    x.span = fields_place(g->source, "activation_checkpoint");
    if (json_object_get(at, "memory_budget"))
        mode = "memory_budget";
    given_value(g, &x, mode);
    vec_push(g->arena, &g->all, x);
    struct given option = {.name = "activation_checkpoint", .key = "activation_checkpoint.selective_ac_option"};
    option.span = x.span;
    given_value(g, &option, "op");
    vec_push(g->arena, &g->all, option);
}

bool titan_is(json_t *root)
{
    return json_is_object(json_object_get(root, "parallelism")) && json_is_object(json_object_get(root, "training"));
}

/* ---- degrees and batches ---- */

static uint64_t degree(const struct args *x, unsigned row)
{
    uint64_t n = arg_count(x, row);
    if (n == 0 || n > UINT16_MAX)
        arg_error(x, row, "'%.80s' should be 1 to %d", arg_name(x, row), UINT16_MAX);
    return n == 0 || n > UINT16_MAX ? 1 : n;
}

struct titan_degrees titan_degrees(const struct args *x)
{
    struct titan_degrees d = {.tp = degree(x, T_parallelism_tensor_parallel_degree),
                              .pp = degree(x, T_parallelism_pipeline_parallel_degree),
                              .cp = degree(x, T_parallelism_context_parallel_degree),
                              .ep = degree(x, T_parallelism_expert_parallel_degree),
                              .replicate = degree(x, T_parallelism_data_parallel_replicate_degree),
                              .world = arg_count(x, T_world_size)};
    double shard = arg_real(x, T_parallelism_data_parallel_shard_degree);
    uint64_t others = d.tp * d.pp * d.cp;
    if (others > UINT32_MAX || d.replicate > UINT16_MAX || shard > UINT16_MAX || (shard < 1 && shard != -1) ||
        shard != floor(shard)) {
        arg_error(x, T_parallelism_data_parallel_shard_degree, "'%.80s' should be -1, or 1 to %d",
                  arg_name(x, T_parallelism_data_parallel_shard_degree), UINT16_MAX);
        return d;
    }
    others *= d.replicate;
    d.shard = shard > 0 ? (uint64_t)shard : d.world / others; /* -1: what the others leave */
    if (d.world && (shard < 0 ? d.world % others : d.world != others * d.shard))
        arg_error(x, T_parallelism_data_parallel_shard_degree, "the degrees do not make %llu ranks",
                  (unsigned long long)d.world);
    d.dp = d.replicate * d.shard;
    d.world = d.dp * d.tp * d.pp * d.cp;
    return d;
}

struct titan_batch titan_batch(const struct args *x, const struct titan_degrees *d)
{
    struct titan_batch n = {.sequence = arg_count(x, T_training_seq_len)};
    bool tokens = arg_said(x, T_training_num_tokens_per_microbatch_per_dp_rank);
    uint64_t each = tokens ? arg_count(x, T_training_num_tokens_per_microbatch_per_dp_rank)
                           : arg_count(x, T_training_local_batch_size),
             unit = tokens ? n.sequence : 1, pieces = 1;
    unsigned whole = tokens ? T_training_num_tokens_per_train_step : T_training_global_batch_size;
    double global = arg_real(x, whole);
    if (!n.sequence || !each || each > UINT32_MAX || n.sequence > UINT32_MAX || each % unit) {
        arg_error(x, tokens ? T_training_num_tokens_per_microbatch_per_dp_rank : T_training_local_batch_size,
                  "a microbatch of whole sequences does not come of this");
        return (struct titan_batch){0};
    }
    each /= unit;
    if (d->pp > 1 && tokens) {
        pieces = degree(x, T_parallelism_num_pp_microbatches);
        n.microbatch = each;
    } else if (d->pp > 1) { /* a rank's batch is cut for the pipeline */
        n.microbatch = degree(x, T_parallelism_pipeline_parallel_microbatch_size);
        pieces = each / n.microbatch;
    } else {
        n.microbatch = each;
    }
    uint64_t once = n.microbatch * pieces * d->dp;
    n.batch = global > 0 && global < 1e15 ? (uint64_t)global / unit : once;
    if (!n.batch)
        arg_error(x, whole, "the batch does not follow without the number of ranks: --set WORLD_SIZE=N");
    else if (once && n.batch % once)
        arg_error(x, whole, "a batch of %llu sequences is no multiple of %llu, which all ranks take at once",
                  (unsigned long long)n.batch, (unsigned long long)once);
    else if (once && d->pp > 1 && n.batch != once)
        arg_refuse(x, whole, "a step of several runs through the pipeline");
    return n;
}

/* ---- the whole ---- */

static const char *taken(struct arena *a, struct strbuf *b)
{
    const char *text = arena_strdup(a, b->text ? b->text : "");
    strbuf_free(b);
    return text;
}

static void take_sets(const struct args *x, const struct import_options *o)
{
    for (size_t i = 0; i < o->nsets; i++) {
        const char *set = o->sets[i], *value = strchr(set, '=');
        const char *name = arena_strndup(x->givens->arena, set, value ? (size_t)(value - set) : strlen(set));
        const char *key = !strcmp(name, "WORLD_SIZE") ? "world.size" : name;
        if (!value || !arg_known(x, key)) {
            diag_error(x->givens->diag, (struct span){0}, "set",
                       value ? "--set %.60s: no such setting is known" : "--set %.60s: write NAME=VALUE", set);
            continue;
        }
        struct given at = {.name = name, .key = key, .set = true};
        given_value(x->givens, &at, value + 1);
        vec_push(x->givens->arena, &x->givens->all, at);
    }
}

char *titan_read(struct givens *g, json_t *root, const struct import_options *o, const char *name)
{
    struct args x = {g, rows, ARRAY_LEN(rows), elsewhere, ARRAY_LEN(elsewhere)};
    struct described m = {.name = name};
    struct strbuf train = {0}, plan = {0};
    if (root) {
        flatten(g, root, "", 0);
        policy(g, root);
    } else if (!toml_read(g)) {
        return NULL;
    }
    for (size_t i = 0; i < g->all.n; i++)
        g->all.at[i].null |= is_aside(g->all.at[i].name);
    take_sets(&x, o);
    given_leave_out(g);
    titan_flavor(&x, root ? json_object_get(root, "model_spec") : NULL, &m);
    struct titan_degrees d = titan_degrees(&x);
    struct titan_batch n = titan_batch(&x, &d);
    titan_train(&x, &n, &train);
    titan_plan(&x, &m, &d, &n, &plan);
    arg_rest(&x);
    m.train = taken(g->arena, &train);
    m.plan = taken(g->arena, &plan);
    return diag_errors(g->diag) ? NULL : describe(g->arena, &m, g->notes.at, g->notes.n);
}
