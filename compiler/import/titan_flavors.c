/* The models that torchtitan knows by name and flavour: torchtitan/models/{llama3,qwen3,deepseek_v3}/__init__.py at
 * b5bcd76c (2026-08-21); inner widths of Llama by its compute_ffn_hidden_dim().  Of experts every layer has a router
 * whose biases balance them, by make_moe_config(). */

#include "compiler/import/titan_private.h"

#include <string.h>

/* experts of `width`; dense: layers in front that have none; plain: weights are not divided by their sum */
struct sparse {
    uint32_t n, active, shared, width, dense, groups, pick;
    double scale;
    bool sigmoid, plain;
};
static const struct flavor {
    const char *model, *name;
    uint32_t vocab, width, layers, heads, kv, q_rank, inner;
    double theta;
    bool tied;
    struct sparse experts;
} flavors[] = {
    {"llama3", "1B", 128256, 2048, 16, 32, 8, 0, 8192, 5e5, true, {0}},
    {"llama3", "3B", 128256, 3072, 28, 24, 8, 0, 8192, 5e5, true, {0}},
    {"llama3", "8B", 128256, 4096, 32, 32, 8, 0, 14336, 5e5, false, {0}},
    {"llama3", "70B", 128256, 8192, 80, 64, 8, 0, 28672, 5e5, false, {0}},
    {"llama3", "405B", 128256, 16384, 126, 128, 8, 0, 53248, 5e5, false, {0}},
    {"qwen3", "0.6B", 151936, 1024, 28, 16, 8, 0, 3072, 1e6, true, {0}},
    {"qwen3", "1.7B", 151936, 2048, 28, 16, 8, 0, 6144, 1e6, true, {0}},
    {"qwen3", "4B", 151936, 2560, 36, 32, 8, 0, 9728, 1e6, true, {0}},
    {"qwen3", "8B", 151936, 4096, 36, 32, 8, 0, 12288, 1e6, false, {0}},
    {"qwen3", "14B", 151936, 5120, 40, 40, 8, 0, 17408, 1e6, false, {0}},
    {"qwen3", "32B", 151936, 5120, 64, 64, 8, 0, 25600, 1e6, false, {0}},
    {"qwen3", "30B-A3B", 151936, 2048, 48, 32, 4, 0, 0, 1e6, false, {128, 8, 0, 768, 0, 1, 1, 1, false, false}},
    {"qwen3", "235B-A22B", 151936, 4096, 94, 64, 4, 0, 0, 5e6, false, {128, 8, 0, 1536, 0, 1, 1, 1, false, false}},
    {"deepseek_v3", "16B", 102400, 2048, 27, 16, 16, 0, 10944, 1e4, false, {64, 6, 2, 1408, 1, 1, 1, 1, true, false}},
    {"deepseek_v3",
     "236B",
     102400,
     5120,
     60,
     128,
     128,
     1536,
     12288,
     1e4,
     false,
     {160, 6, 2, 1536, 1, 8, 3, 16, false, true}},
    {"deepseek_v3",
     "671B",
     129280,
     7168,
     61,
     128,
     128,
     1536,
     18432,
     1e4,
     false,
     {256, 8, 1, 2048, 3, 8, 4, 2.5, true, false}},
};

static bool is_model(const struct flavor *f, const char *model)
{
    return !strcmp(f->model, model);
}

/* does the file itself describe another model by that name? */
static void compare(const struct args *x, const json_t *spec, const struct flavor *f)
{
    const json_t *model = json_object_get(spec, "model"), *dim = json_object_get(model, "dim"),
                 *vocab = json_object_get(model, "vocab_size"), *layers = json_object_get(model, "layers");
    if ((dim && json_integer_value(dim) != f->width) || (vocab && json_integer_value(vocab) != f->vocab) ||
        (layers && json_array_size(layers) != f->layers))
        arg_error(x, T_model_flavor, "the file describes another model than %s %s: %u layers of width %u", f->model,
                  f->name, f->layers, f->width);
}

static const struct flavor *find(const struct args *x)
{
    const char *name = arg_word(x, T_model_name), *flavor = arg_word(x, T_model_flavor);
    for (size_t i = 0; i < ARRAY_LEN(flavors); i++)
        if (!strcmp(name, flavors[i].model) && !strcmp(flavor, flavors[i].name))
            return &flavors[i];
    struct strbuf known = {0};
    for (size_t i = 0; i < ARRAY_LEN(flavors); i++) {
        bool more = i && is_model(&flavors[i], flavors[i - 1].model);
        strbuf_printf(&known, "%s%s%s%s", i && !more ? "; " : "", more ? ", " : flavors[i].model, more ? "" : " of ",
                      flavors[i].name);
    }
    arg_error(x, T_model_flavor, "model '%.40s' of flavor '%.40s' is not known", name, flavor);
    diag_help(x->givens->diag,
              "known are %s; of others import the config.json beside their weights, and write train and "
              "plan",
              known.text);
    strbuf_free(&known);
    return NULL;
}

/* Rotary positions are stretched as the file says (Llama), or for sequences that DeepSeek's were not made for; the
 * magnitude of scores then is the flavour's own (models/deepseek_v3/model.py). */
static const char *stretched(const struct args *x, const json_t *spec, const struct flavor *f)
{
    const json_t *first = json_array_get(json_object_get(json_object_get(spec, "model"), "layers"), 0),
                 *rope = json_object_get(json_object_get(first, "attention"), "rope");
    const char *said = json_string_value(json_object_get(rope, "scaling"));
    if (is_model(f, "deepseek_v3"))
        return arg_count(x, T_training_seq_len) <= 4096 ? NULL
               : f->q_rank                              ? "yarn(factor=40, original=4096, mscale_all=1)"
                                                        : "yarn(factor=40, original=4096, mscale=0.7, mscale_all=0.7)";
    return said && !strcmp(said, "llama") ? "llama3(factor=8, low=1, high=4, original=8192)" : NULL;
}

static struct described_attention attention(const struct flavor *f)
{
    struct described_attention a = {
        .heads = f->heads, .kv = f->kv, .head = f->width / f->heads, .rope.theta = f->theta};
    if (is_model(f, "qwen3")) {
        a.head = 128;
        a.qk_norm = "head";
    }
    if (is_model(f, "deepseek_v3")) {
        a.mla = true;
        a.q_rank = f->q_rank;
        a.kv_rank = 512;
        a.nope = a.v = 128;
        a.rope_dims = 64;
    }
    return a;
}

static struct described_layer layer(const struct flavor *f, bool experts)
{
    struct described_layer l = {.attention = attention(f), .ffn = {.kind = "swiglu", .width = f->inner}};
    if (!experts)
        return l;
    l.ffn.width = f->experts.width;
    l.experts = f->experts.n;
    l.active = f->experts.active;
    l.shared = f->experts.shared;
    l.sigmoid = f->experts.sigmoid;
    l.plain = f->experts.plain;
    l.router_bias = true;
    l.groups = f->experts.groups;
    l.pick = f->experts.pick;
    l.router_scale = f->experts.scale;
    return l;
}

void titan_flavor(const struct args *x, const json_t *spec, struct described *m)
{
    const struct flavor *f = find(x);
    if (!f)
        return;
    if (spec)
        compare(x, spec, f);
    m->vocab = f->vocab;
    m->width = f->width;
    m->nlayers = f->layers;
    m->eps = is_model(f, "llama3") ? 1e-5 : 1e-6;
    m->tied = f->tied;
    m->layers = ARENA_ARRAY(x->givens->arena, struct described_layer, f->layers);
    for (uint32_t k = 0; k < f->layers; k++) {
        m->layers[k] = layer(f, f->experts.n && k >= f->experts.dense);
        m->layers[k].attention.rope.scaling = stretched(x, spec, f);
    }
}
