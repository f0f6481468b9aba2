/* The plan block of a torchtitan configuration.  A pipeline without named parts is cut as torchtitan's
 * distributed/pipeline_parallel.py cuts it (_generate_llm_fqn_per_model_part): embedding and head count as layers. */

#include "compiler/import/titan_private.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STAGES = 10000 };

static void equal(struct strbuf *b, const char *word, uint64_t value)
{
    strbuf_printf(b, "%s = %llu\n", word, (unsigned long long)value);
}

/* torch.distributed.pipelining: get_schedule_class(), whose names have no case */
static const struct schedule_name {
    const char *name, *word;
    bool single; /* one stage for each rank */
} schedules[] = {{"1F1B", "1f1b", true},
                 {"GPipe", "gpipe", true},
                 {"Interleaved1F1B", "interleaved", false},
                 {"ZBVZeroBubble", "zb_v", false},
                 {"DualPipeV", "dualpipe_v", false}};

static const struct schedule_name *schedule_of(const struct args *x)
{
    const char *name = arg_word(x, T_parallelism_pipeline_parallel_schedule);
    for (size_t i = 0; i < ARRAY_LEN(schedules); i++)
        if (!strcasecmp(name, schedules[i].name))
            return &schedules[i];
    return NULL;
}

static void stage(struct strbuf *b, uint64_t at, uint64_t stages, uint64_t layers)
{
    strbuf_printf(b,
                  layers > 1 ? "%s%st*%llu"
                  : layers   ? "%s%st"
                             : "%s%s",
                  at ? "|" : "", at ? "" : "E", (unsigned long long)layers);
    strbuf_text(b, at + 1 == stages ? "L" : "");
}

static void even(const struct args *x, const struct described *m, uint64_t stages, struct strbuf *b)
{
    uint64_t before = arg_count(x, T_parallelism_pipeline_parallel_first_stage_less_layers),
             behind = arg_count(x, T_parallelism_pipeline_parallel_last_stage_less_layers);
    before = before <= MOST_STAGES ? before : MOST_STAGES;
    behind = behind <= MOST_STAGES ? behind : MOST_STAGES;
    uint64_t all = m->nlayers + before + behind, each = all / stages;
    if (before > each || behind > each) {
        arg_error(x, T_parallelism_pipeline_parallel_degree, "%u layers are too few for %llu stages", m->nlayers,
                  (unsigned long long)stages);
        return;
    }
    for (uint64_t i = 0; i < stages; i++)
        stage(b, i, stages, each + (i < all % stages) - (i == 0 ? before : i + 1 == stages ? behind : 0));
}

/* layers of a part: names such as "tok_embeddings,layers.0,layers.1"; false where they do not go on from *next */
static bool part_layers(const char *names, uint64_t *next, uint64_t *n)
{
    for (const char *at = names; *at; at += strcspn(at, ","), at += *at == ',') {
        if (strncmp(at, "layers.", 7) != 0)
            continue;
        if (!isdigit((unsigned char)at[7]) || strtoull(at + 7, NULL, 10) != *next)
            return false;
        ++*next;
        ++*n;
    }
    return true;
}

/* stages that are named, by their modules or by the first module of all but the first */
static uint64_t named(const struct args *x, const struct described *m, struct strbuf *b)
{
    uint32_t n;
    const char *const *parts = arg_words(x, T_parallelism_module_fqns_per_model_part, &n);
    uint64_t next = 0, wrong = 0;
    for (uint32_t i = 0; i < n && n <= MOST_STAGES && !wrong; i++) {
        uint64_t layers = 0;
        wrong = !part_layers(parts[i], &next, &layers);
        stage(b, i, n, layers);
    }
    if (n && (wrong || next != m->nlayers || n > MOST_STAGES))
        arg_error(x, T_parallelism_module_fqns_per_model_part, "the parts do not have all %u layers in order",
                  m->nlayers);
    if (n)
        return n;
    const char *const *points = arg_words(x, T_parallelism_pipeline_parallel_split_points, &n);
    for (uint32_t i = 0; i <= n && n && n < MOST_STAGES; i++) {
        const char *at = i < n ? points[i] : "layers.";
        uint64_t until = i < n ? strtoull(at + (strncmp(at, "layers.", 7) ? 0 : 7), NULL, 10) : m->nlayers;
        if (strncmp(at, "layers.", 7) != 0 || until < next || until > m->nlayers) {
            arg_error(x, T_parallelism_pipeline_parallel_split_points,
                      "'%.40s' is no layer behind those in front of it", at);
            return 0;
        }
        stage(b, i, n + 1u, until - next);
        next = until;
    }
    return n && n < MOST_STAGES ? n + 1u : 0;
}

static void pipeline(const struct args *x, const struct described *m, const struct titan_degrees *d, struct strbuf *b)
{
    const char *file = arg_word(x, T_parallelism_pipeline_parallel_schedule_csv);
    const struct schedule_name *s = schedule_of(x);
    struct strbuf layout = {0};
    uint64_t each = arg_count(x, T_parallelism_pipeline_parallel_layers_per_stage),
             around = arg_count(x, T_parallelism_pipeline_parallel_first_stage_less_layers) +
                      arg_count(x, T_parallelism_pipeline_parallel_last_stage_less_layers);
    if (d->pp == 1) {
        equal(b, "vpp", 1);
        strbuf_text(b, "schedule 1f1b\n");
        return;
    }
    if (*file && (strpbrk(file, "\"\\\n") || strlen(file) > 4096))
        arg_error(x, T_parallelism_pipeline_parallel_schedule_csv, "this name of a file cannot be written");
    if (!*file && !s) {
        arg_refuse(x, T_parallelism_pipeline_parallel_schedule, "schedule '%.60s'",
                   arg_word(x, T_parallelism_pipeline_parallel_schedule));
        return;
    }
    uint64_t stages = named(x, m, &layout);
    if (!stages && each)
        stages = around <= MOST_STAGES ? (m->nlayers + around + each - 1) / each : 0;
    else if (!stages)
        stages = d->pp * (s && s->single ? 1 : 2);
    if (stages == 0 || stages % d->pp || stages > MOST_STAGES)
        arg_error(x, T_parallelism_pipeline_parallel_degree, "%llu stages are no multiple of %llu pipeline ranks",
                  (unsigned long long)stages, (unsigned long long)d->pp);
    else if (!layout.length)
        even(x, m, stages, &layout);
    equal(b, "vpp", stages / d->pp);
    if (layout.length)
        strbuf_printf(b, "layout \"%s\"\n", layout.text);
    if (*file)
        strbuf_printf(b, "schedule \"%s\"\n", file);
    else
        strbuf_printf(b, "schedule %s\n", s->word);
    strbuf_free(&layout);
}

static void state(const struct args *x, const struct titan_degrees *d, struct strbuf *b)
{
    const char *policy = arg_word(x, T_parallelism_fsdp_reshard_after_forward);
    bool always = !strcmp(policy, "always") || (!strcmp(policy, "default") && d->pp == 1);
    if (strcmp(policy, "always") != 0 && strcmp(policy, "default") != 0 && strcmp(policy, "never") != 0)
        arg_error(x, T_parallelism_fsdp_reshard_after_forward, "'%.60s' is always, never or default",
                  arg_name(x, T_parallelism_fsdp_reshard_after_forward));
    if (!d->shard)
        return;
    bool splits = d->shard * d->cp > 1;
    equal(b, "zero", !splits ? 0 : always ? 3 : 2);
    if (splits)
        equal(b, "shard", d->shard * d->cp);
}

static void recompute(const struct args *x, struct strbuf *b)
{
    const char *mode = arg_word(x, T_activation_checkpoint_mode);
    bool known = !strcmp(mode, "none") || !strcmp(mode, "full") || !strcmp(mode, "selective");
    if (!known)
        arg_refuse(x, T_activation_checkpoint_mode, "recomputation by '%.60s'", mode);
    else if (!strcmp(mode, "selective") && !arg_is(x, T_activation_checkpoint_selective_ac_option, "op"))
        arg_refuse(x, T_activation_checkpoint_selective_ac_option, "recomputation of one in '%.10s' layers",
                   arg_word(x, T_activation_checkpoint_selective_ac_option));
    strbuf_printf(b, "recompute %s\n", known ? mode : "none");
}

/* torchtitan/models/common/moe_sharding.py: tp splits experts where ep does not spread them */
static void experts(const struct args *x, const struct described *m, const struct titan_degrees *d, struct strbuf *b)
{
    bool any = m->nlayers && m->layers[m->nlayers - 1].experts; /* dense layers are in front */
    if (!any && d->ep > 1)
        arg_refuse(x, T_parallelism_expert_parallel_degree, "expert parallelism of a model without experts");
    if (!any)
        return;
    equal(b, "ep", d->ep);
    equal(b, "etp", d->ep > 1 ? 1 : d->tp);
}

void titan_plan(const struct args *x, const struct described *m, const struct titan_degrees *d,
                const struct titan_batch *n, struct strbuf *b)
{
    const char *rotate = arg_word(x, T_parallelism_context_parallel_rotate_method);
    strbuf_text(b, "target torchtitan\n");
    if (d->world)
        strbuf_printf(b, "gpus in [%llu]\n", (unsigned long long)d->world);
    equal(b, "tp", d->tp);
    equal(b, "cp", d->cp);
    equal(b, "pp", d->pp);
    pipeline(x, m, d, b);
    if (d->dp)
        equal(b, "dp", d->dp);
    experts(x, m, d, b);
    state(x, d, b);
    equal(b, "microbatch", n->microbatch);
    if (d->tp > 1)
        strbuf_printf(b, "sequence_parallel %s\n", arg_yes(x, T_parallelism_enable_sequence_parallel) ? "yes" : "no");
    recompute(x, b);
    if (d->cp > 1 && (!strcmp(rotate, "allgather") || !strcmp(rotate, "alltoall")))
        strbuf_printf(b, "context %s\n", !strcmp(rotate, "allgather") ? "all_gather" : "ring");
    else if (d->cp > 1 && *rotate)
        arg_refuse(x, T_parallelism_context_parallel_rotate_method, "context parallelism by '%.60s'", rotate);
    if (d->tp > 1 && arg_yes(x, T_parallelism_enable_async_tensor_parallel))
        strbuf_text(b, "overlap tp with compute\n");
    strbuf_printf(b, "compile %s\n", arg_yes(x, T_compile_enable) ? "yes" : "no");
    strbuf_text(b, "order [tp, cp, dp, pp]\n");
}
