/* The plan block that settings of Megatron-LM describe: a decision in full, but for the data parallel degree where the
 * number of ranks is not said.
 *
 * A pipeline without a layout is cut as get_num_layers_to_build() of megatron/core/transformer/transformer_block.py
 * cuts it, and written as a layout: chunk v of rank r is stage v * pp + r. */

#include "compiler/import/megatron.h"

#include <string.h>

enum { MOST_LETTERS = 100000, MOST_STAGES = 65536 };

struct degrees {
    uint64_t tp, pp, cp, dp, ep, etp, vpp, world; /* dp, world: 0 where they are not said */
    bool experts;
};

static void equal(struct strbuf *b, const char *word, uint64_t value)
{
    strbuf_printf(b, "%s = %llu\n", word, (unsigned long long)value);
}

static uint64_t degree(const struct args *x, unsigned row)
{
    uint64_t n = arg_count(x, row);
    if (n == 0 || n > UINT16_MAX)
        arg_error(x, row, "'%.60s' should be 1 to %d", arg_name(x, row), UINT16_MAX);
    return n == 0 || n > UINT16_MAX ? 1 : n;
}

/* ---- the pipeline's layout ---- */

static uint32_t times(const char **at)
{
    uint32_t n = 0;
    if (**at != '*')
        return 1;
    for (++*at; **at >= '0' && **at <= '9'; ++*at)
        n = n > MOST_LETTERS ? n : n * 10 + (uint32_t)(**at - '0');
    return n;
}

/* a layout's letters, with (...)*N and x*N written out; what is wrong with it, or NULL */
static const char *expand(const char *at, const char *end, struct strbuf *out, bool inside)
{
    while (at < end) {
        if (*at == ',') {
            at++;
            continue;
        }
        const char *from = at, *close = *at == '(' ? memchr(at, ')', (size_t)(end - at)) : NULL;
        struct strbuf part = {0};
        const char *wrong = NULL;
        if (*at == '(' && (!close || inside))
            wrong = "its parentheses do not match";
        else if (*at == '(')
            wrong = expand(from + 1, close, &part, true);
        else if (!strchr("EtmL|", *at))
            wrong = "E, t, m, L and | are known";
        at = close ? close + 1 : at + 1;
        uint32_t n = times(&at);
        size_t length = close ? part.length : 1;
        if (!wrong && (n == 0 || out->length + (uint64_t)n * length > MOST_LETTERS))
            wrong = n ? "it has more than 100,000 letters" : "a number behind * is missing";
        for (uint32_t i = 0; i < n && !wrong; i++)
            strbuf_bytes(out, close ? part.text : from, length);
        strbuf_free(&part);
        if (wrong)
            return wrong;
    }
    return NULL;
}

/* stages of a layout, or 0 after an error */
static uint64_t stages_of(const struct args *x, const char *layout)
{
    struct strbuf letters = {0};
    const char *wrong = expand(layout, layout + strlen(layout), &letters, false);
    uint64_t n = 1;
    bool empty = true, any_empty = false;
    for (size_t i = 0; i < letters.length && !wrong; i++) {
        any_empty |= letters.text[i] == '|' && empty;
        n += letters.text[i] == '|';
        empty = letters.text[i] == '|';
    }
    strbuf_free(&letters);
    if (wrong)
        arg_error(x, A_pipeline_model_parallel_layout, "the layout cannot be read: %s", wrong);
    else if (any_empty || empty)
        arg_error(x, A_pipeline_model_parallel_layout,
                  "the layout has a stage with nothing in it, which llmc does not plan");
    return wrong || any_empty || empty ? 0 : n;
}

/* a configuration's list of stages, each "embedding,decoder,...", as a layout */
static char *layout_of_list(const struct args *x, const char *const *stages, uint32_t n)
{
    static const struct {
        const char *name;
        char letter;
    } kinds[] = {{"embedding", 'E'}, {"decoder", 't'}, {"mtp", 'm'}, {"loss", 'L'},
                 {"E", 'E'},         {"t", 't'},       {"m", 'm'},   {"L", 'L'}};
    struct strbuf b = {0};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t run = 0;
        strbuf_text(&b, i ? "|" : "");
        for (const char *at = stages[i]; *at;) {
            size_t length = strcspn(at, ","), k = 0;
            while (k < ARRAY_LEN(kinds) && (strlen(kinds[k].name) != length || strncmp(kinds[k].name, at, length) != 0))
                k++;
            char letter = k < ARRAY_LEN(kinds) ? kinds[k].letter : '?';
            at += length + (at[length] == ',');
            run++;
            if (!strncmp(at, kinds[k < ARRAY_LEN(kinds) ? k : 0].name, length) && (at[length] == ',' || !at[length]))
                continue; /* another of the same */
            strbuf_printf(&b, run > 1 ? "%c*%u" : "%c", letter, run);
            run = 0;
        }
    }
    char *text = arena_strdup(x->givens->arena, b.text ? b.text : "");
    strbuf_free(&b);
    return text;
}

static const char *given_layout(const struct args *x)
{
    uint32_t n;
    const char *const *words = arg_words(x, A_pipeline_model_parallel_layout, &n);
    if (!n)
        return NULL;
    if (n > 1 || strstr(words[0], "embedding") || strstr(words[0], "decoder"))
        return layout_of_list(x, words, n);
    return words[0];
}

/* layers of each pipeline rank, by its number; 0 with an error where they do not divide */
static uint64_t layers_of_rank(const struct args *x, const struct described *m, const struct degrees *d, uint64_t rank)
{
    bool first = arg_said(x, A_num_layers_in_first_pipeline_stage),
         last = arg_said(x, A_num_layers_in_last_pipeline_stage);
    uint64_t layers = m->nlayers, ranks = d->pp, at_first = arg_count(x, A_num_layers_in_first_pipeline_stage),
             at_last = arg_count(x, A_num_layers_in_last_pipeline_stage);
    if (first && rank == 0)
        return at_first;
    if (last && rank == d->pp - 1)
        return at_last;
    layers += !first && !last && arg_yes(x, A_account_for_embedding_in_pipeline_split);
    layers += !first && !last && arg_yes(x, A_account_for_loss_in_pipeline_split);
    uint64_t ends = (first ? at_first : 0) + (last ? at_last : 0);
    ranks -= (uint64_t)first + (uint64_t)last;
    if (ends > layers || (layers - ends) % ranks) {
        arg_error(x, A_pipeline_model_parallel_size, "%llu layers cannot be cut evenly into %llu pipeline stages",
                  (unsigned long long)(ends > layers ? layers : layers - ends), (unsigned long long)ranks);
        return 0;
    }
    return (layers - ends) / ranks;
}

static const char *even_layout(const struct args *x, const struct described *m, const struct degrees *d)
{
    struct strbuf b = {0};
    uint64_t total = 0, stages = d->pp * d->vpp;
    bool uneven = arg_said(x, A_num_layers_in_first_pipeline_stage) || arg_said(x, A_num_layers_in_last_pipeline_stage);
    strbuf_char(&b, 'E');
    for (uint64_t i = 0; i < stages && !diag_errors(x->givens->diag); i++) {
        uint64_t n = layers_of_rank(x, m, d, i % d->pp);
        if (n % d->vpp)
            arg_error(x, A_virtual_pipeline_model_parallel_size,
                      "%llu layers of a pipeline rank are no multiple of its %llu chunks", (unsigned long long)n,
                      (unsigned long long)d->vpp);
        n /= d->vpp;
        n -= !uneven && i == 0 && n && arg_yes(x, A_account_for_embedding_in_pipeline_split);
        n -= !uneven && i == stages - 1 && n && arg_yes(x, A_account_for_loss_in_pipeline_split);
        total += n;
        strbuf_printf(&b, n > 1 ? "%st*%llu" : n ? "%st" : "%s", i ? "|" : "", (unsigned long long)n);
    }
    strbuf_char(&b, 'L');
    if (!diag_errors(x->givens->diag) && total != m->nlayers)
        arg_error(x, A_pipeline_model_parallel_size, "the stages have %llu layers, the model %u",
                  (unsigned long long)total, m->nlayers);
    char *text = arena_strdup(x->givens->arena, b.text);
    strbuf_free(&b);
    return text;
}

/* chunks of a pipeline rank without a layout */
static uint64_t chunks(const struct args *x, const struct described *m, const struct degrees *d)
{
    uint64_t n = arg_count(x, A_virtual_pipeline_model_parallel_size),
             each = arg_count(x, A_num_layers_per_virtual_pipeline_stage);
    if (!n && each) {
        uint64_t rank = layers_of_rank(x, m, d, d->pp / 2);
        if (rank % each)
            arg_error(x, A_num_layers_per_virtual_pipeline_stage,
                      "%llu layers of a pipeline rank are no multiple of %llu", (unsigned long long)rank,
                      (unsigned long long)each);
        n = rank / each;
    }
    if (n > MOST_STAGES / d->pp)
        arg_error(x, A_virtual_pipeline_model_parallel_size, "more than %d pipeline stages", MOST_STAGES);
    return n && n <= MOST_STAGES / d->pp ? n : 1;
}

static void pipeline(const struct args *x, const struct described *m, struct degrees *d, struct strbuf *b)
{
    const char *layout = given_layout(x);
    if (d->pp == 1)
        layout = NULL; /* one stage has everything */
    uint64_t stages = layout ? stages_of(x, layout) : 0;
    if (stages % d->pp)
        arg_error(x, A_pipeline_model_parallel_layout,
                  "the layout's %llu stages are no multiple of %llu pipeline ranks", (unsigned long long)stages,
                  (unsigned long long)d->pp);
    d->vpp = d->pp == 1 ? 1 : layout ? (stages > d->pp ? stages / d->pp : 1) : chunks(x, m, d);
    if (d->pp > 1 && !layout && !diag_errors(x->givens->diag))
        layout = even_layout(x, m, d);
    equal(b, "vpp", d->vpp);
    if (layout)
        strbuf_printf(b, "layout \"%s\"\n", layout);
}

static void schedule(const struct args *x, const struct degrees *d, struct strbuf *b)
{
    uint64_t group = arg_count(x, A_microbatch_group_size_per_vp_stage);
    bool beside = arg_yes(x, A_overlap_moe_expert_parallel_comm);
    if (beside && d->pp > 1)
        strbuf_text(b, "schedule combined_1f1b\n");
    else if (d->vpp > 1 && group && group != d->pp)
        strbuf_printf(b, "schedule interleaved(group=%llu)\n", (unsigned long long)group);
    else
        strbuf_printf(b, "schedule %s\n", d->vpp > 1 ? "interleaved" : "1f1b");
    if (d->experts && (!beside || d->pp == 1))
        strbuf_printf(b, "expert_overlap %s\n", beside ? "yes" : "no");
}

/* ---- experts' transfers ---- */

static void dispatcher(const struct args *x, const struct degrees *d, struct strbuf *b)
{
    const char *type = arg_word(x, A_moe_token_dispatcher_type), *backend = arg_word(x, A_moe_flex_dispatcher_backend);
    if (!d->experts)
        return;
    if (!strcmp(type, "alltoall")) {
        strbuf_text(b, "dispatcher alltoall\n");
    } else if (!strcmp(type, "flex") && (!strcmp(backend, "deepep") || !strcmp(backend, "hybridep"))) {
        strbuf_printf(b, "dispatcher %s\n", arg_yes(x, A_moe_enable_deepep) ? "deepep" : backend);
    } else if (!strcmp(type, "flex")) {
        arg_refuse(x, A_moe_flex_dispatcher_backend, "a dispatcher '%.60s'", backend);
    } else if (d->ep * d->etp > 1) { /* nothing travels to experts that every rank has whole */
        arg_refuse(x, A_moe_token_dispatcher_type, "a dispatcher '%.60s'", type);
    }
}

/* ---- state, recomputation, the rest ---- */

/* is data-parallel communication beside compute asked for? */
static bool overlaps(const struct args *x)
{
    return arg_yes(x, A_overlap_grad_reduce) || arg_yes(x, A_overlap_param_gather);
}

static void state(const struct args *x, const struct degrees *d, struct strbuf *b)
{
    static const char *const strategies[] = {"no_shard", "optim", "optim_grads", "optim_grads_params"};
    const char *strategy = arg_word(x, A_data_parallel_sharding_strategy);
    uint64_t zero = arg_yes(x, A_use_distributed_optimizer), copies = degree(x, A_num_distributed_optimizer_instances);
    bool fsdp = arg_yes(x, A_use_megatron_fsdp);
    for (uint64_t i = 0; i < ARRAY_LEN(strategies) && fsdp; i++)
        if (!strcmp(strategy, strategies[i]))
            zero = i;
    equal(b, "zero", zero);
    uint64_t ranks = d->dp * d->cp;
    if (zero && copies > 1 && !ranks)
        arg_error(x, A_num_distributed_optimizer_instances, "'%.60s' wants the number of ranks: --set WORLD_SIZE=N",
                  arg_name(x, A_num_distributed_optimizer_instances));
    else if (zero && copies > 1 && ranks % copies)
        arg_error(x, A_num_distributed_optimizer_instances, "%llu data parallel ranks are no multiple of %llu",
                  (unsigned long long)ranks, (unsigned long long)copies);
    else if (zero && ranks)
        equal(b, "shard", ranks / copies);
    bool never = !fsdp && !overlaps(x) && ranks != 1,
         pp = d->vpp > 1 &&
              !arg_yes(x, A_overlap_p2p_comm); /* without virtual stages it has no such overlap to forbid */
    if (never || pp)
        strbuf_printf(b, "never overlap [%s%s%s]\n", never ? "dp" : "", never && pp ? ", " : "", pp ? "pp" : "");
}

static void modules(const struct args *x, struct strbuf *b)
{
    static const struct {
        const char *module, *part;
    } known[] = {{"layernorm", "norm"}, {"core_attn", "core_attn"}, {"mla_up_proj", "mla_up"},   {"mlp", "ffn"},
                 {"moe", "moe"},        {"moe_act", "moe_act"},     {"shared_experts", "shared"}};
    uint32_t n;
    const char *const *words = arg_words(x, A_recompute_modules, &n);
    static const char *const usual[] = {"core_attn"};
    bool parts[ARRAY_LEN(known)] = {false}, any = false;
    words = words ? words : usual;
    n = n ? n : 1;
    for (uint32_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < ARRAY_LEN(known) && strcmp(words[i], known[k].module) != 0)
            k++;
        if (k == ARRAY_LEN(known))
            arg_refuse(x, A_recompute_modules, "recomputation of '%.60s'", words[i]);
        else
            parts[k] = true;
    }
    parts[4] |= arg_yes(x, A_moe_layer_recompute);
    for (size_t k = 0; k < ARRAY_LEN(known); k++) {
        if (parts[k])
            strbuf_printf(b, "%s%s", any ? ", " : "recompute [", known[k].part);
        any |= parts[k];
    }
    strbuf_text(b, any ? "]\n" : "recompute none\n");
}

static void recompute(const struct args *x, struct strbuf *b)
{
    const char *granularity = arg_word(x, A_recompute_granularity), *method = arg_word(x, A_recompute_method);
    uint64_t layers = arg_count(x, A_recompute_num_layers);
    if (arg_yes(x, A_recompute_activations))
        granularity = "selective";
    if (!*granularity) {
        strbuf_text(b, "recompute none\n");
    } else if (!strcmp(granularity, "selective")) {
        modules(x, b);
    } else if (strcmp(granularity, "full") != 0) {
        arg_error(x, A_recompute_granularity, "'%.60s' is 'full' or 'selective'", arg_name(x, A_recompute_granularity));
    } else if (!strcmp(method, "block")) {
        strbuf_printf(b, layers ? "recompute full(layers=%llu)\n" : "recompute none\n", (unsigned long long)layers);
    } else if (!strcmp(method, "uniform")) {
        if (layers > 1)
            arg_refuse(x, A_recompute_num_layers, "recomputation of %llu layers at once", (unsigned long long)layers);
        strbuf_text(b, "recompute full\n");
    } else {
        arg_error(x, A_recompute_method, "full recomputation wants '%.60s' uniform or block",
                  arg_name(x, A_recompute_method));
    }
}

static void context(const struct args *x, struct strbuf *b)
{
    static const struct {
        const char *type, *word;
    } known[] = {{"p2p", "ring"}, {"all_gather", "all_gather"}, {"allgather", "all_gather"}, {"a2a", "all_to_all"}};
    uint32_t n;
    const char *const *types = arg_words(x, A_cp_comm_type, &n);
    const char *type = n ? types[0] : "p2p";
    for (uint32_t i = 1; i < n; i++)
        if (strcmp(types[i], type) != 0)
            type = "of several types";
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (!strcmp(type, known[i].type)) {
            strbuf_printf(b, "context %s\n", known[i].word);
            return;
        }
    arg_refuse(x, A_cp_comm_type, "context parallelism '%.60s'", type);
}

static struct degrees degrees(const struct args *x, const struct described *m)
{
    struct degrees d = {.tp = degree(x, A_tensor_model_parallel_size),
                        .pp = degree(x, A_pipeline_model_parallel_size),
                        .cp = degree(x, A_context_parallel_size),
                        .ep = degree(x, A_expert_model_parallel_size),
                        .dp = megatron_dp(x),
                        .world = megatron_world(x)};
    d.etp = arg_said(x, A_expert_tensor_parallel_size) ? degree(x, A_expert_tensor_parallel_size) : d.tp;
    for (uint32_t i = 0; i < m->nlayers; i++)
        d.experts |= m->layers[i].experts > 0;
    return d;
}

/* which CUDA graphs there are, in the word that target megatron-core has for them; NULL: another set than it has */
static const char *graphs(const struct args *x)
{
    static const char *const modules[] = {"attn", "mlp", "moe_router", "moe_preprocess"};
    static const char *const words[1 << (ARRAY_LEN(modules) - 1)] = {
        [1] = "attn", [2] = "mlp", [1 | 2] = "attn_mlp", [4] = "moe_router", [1 | 4] = "attn_moe_router"};
    uint32_t n = 0, found = 0;
    const char *const *said = arg_words(x, A_cuda_graph_modules, &n);
    if (arg_is(x, A_cuda_graph_impl, "full_iteration"))
        return "full_iteration";
    for (uint32_t i = 0; said && i < n; i++) {
        size_t k = 0;
        while (k < ARRAY_LEN(modules) && strcmp(said[i], modules[k]) != 0)
            k++;
        if (k == ARRAY_LEN(modules))
            return NULL;
        found |= 1u << k;
    }
    return words[found & (ARRAY_LEN(words) - 1)]; /* what comes before the router goes with it */
}

/* switches that target megatron-core has words for (compiler/target/megatron-core.target) */
static void switches(const struct args *x, const struct degrees *d, struct strbuf *b)
{
    if (d->experts && arg_yes(x, A_moe_permute_fusion))
        strbuf_text(b, "fused_permutation yes\n");
    if (arg_yes(x, A_delay_wgrad_compute) && d->experts)
        strbuf_text(b, "delay_wgrad yes\n");
    else if (arg_yes(x, A_delay_wgrad_compute))
        arg_refuse(x, A_delay_wgrad_compute, "gradients of weights apart from those of inputs, without experts");
    if (arg_yes(x, A_use_precision_aware_optimizer))
        strbuf_text(b, "precision_aware yes\n");
    if (arg_is(x, A_cuda_graph_impl, "none"))
        return;
    const char *word = graphs(x);
    if (word)
        strbuf_printf(b, "cuda_graphs %s\n", word);
    else
        given_note(x->givens, "%s: CUDA graphs of these parts change no prediction", arg_name(x, A_cuda_graph_impl));
}

void megatron_plan(const struct args *x, const struct described *m, struct strbuf *b)
{
    struct degrees d = degrees(x, m);
    strbuf_text(b, "target megatron-core\n");
    if (d.world)
        strbuf_printf(b, "gpus in [%llu]\n", (unsigned long long)d.world);
    equal(b, "tp", d.tp);
    equal(b, "cp", d.cp);
    equal(b, "pp", d.pp);
    pipeline(x, m, &d, b);
    if (d.dp)
        equal(b, "dp", d.dp);
    if (d.experts) {
        equal(b, "ep", d.ep);
        equal(b, "etp", d.etp);
    }
    state(x, &d, b);
    if (!arg_said(x, A_micro_batch_size))
        arg_error(x, A_micro_batch_size, "'%s' is missing", arg_name(x, A_micro_batch_size));
    equal(b, "microbatch", arg_count(x, A_micro_batch_size));
    if (d.tp > 1)
        strbuf_printf(b, "sequence_parallel %s\n", arg_yes(x, A_sequence_parallel) ? "yes" : "no");
    schedule(x, &d, b);
    dispatcher(x, &d, b);
    recompute(x, b);
    if (d.cp > 1)
        context(x, b);
    if (arg_yes(x, A_optimizer_cpu_offload)) {
        if (arg_real(x, A_optimizer_offload_fraction) != 1)
            arg_refuse(x, A_optimizer_offload_fraction, "an optimizer that is partly in host memory");
        strbuf_text(b, "offload [optimizer]\n");
    }
    if (arg_yes(x, A_tp_comm_overlap) && d.tp > 1)
        strbuf_text(b, "overlap tp with compute\n");
    switches(x, &d, b);
    strbuf_printf(b, "order [tp, cp, %s]\n", arg_yes(x, A_use_tp_pp_dp_mapping) ? "pp, dp" : "dp, pp");
}
