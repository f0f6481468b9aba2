/* Drawing models: a unit first, by which heads, key heads and inner widths of most models can be divided, so
 * that tensor parallelism is legal for a good part of them; then one to three kinds of layers, each with
 * dimensions of its own.
 *
 * Left out is what no plan can be made of: words that `llmc help language` marks with a star, shared experts with
 * biases, and prediction modules beside learned positions or a norm of the embedding. */

#include "tests/compiler/random_model.h"

#include "compiler/support/strbuf.h"
#include "tests/compiler/random_plan.h"

#include <stdbool.h>

enum { MOST_KINDS = 3 };

struct draw {
    uint64_t *state;
    struct strbuf *out;
    uint32_t unit, width, sequence;
    bool pre; /* norms come before sublayers */
};

static uint32_t below(struct draw *x, uint32_t n)
{
    return random_below(x->state, n);
}

/* true once in n */
static bool once_in(struct draw *x, uint32_t n)
{
    return below(x, n) == 0;
}

static uint32_t one_of(struct draw *x, const uint32_t *values, uint32_t n)
{
    return values[below(x, n)];
}
#define ONE_OF(x, ...)                                                                                       \
    one_of(x, (const uint32_t[]){__VA_ARGS__}, sizeof(const uint32_t[]){__VA_ARGS__} / sizeof(uint32_t))

static const char *word_of(struct draw *x, const char *const *words, uint32_t n)
{
    return words[below(x, n)];
}
#define WORD_OF(x, ...)                                                                                      \
    word_of(x, (const char *const[]){__VA_ARGS__}, sizeof(const char *const[]){__VA_ARGS__} / sizeof(char *))

/* `text`, once in n */
static void perhaps(struct draw *x, uint32_t n, const char *text)
{
    if (once_in(x, n))
        strbuf_text(x->out, text);
}

/* some divisor of n that `unit` divides */
static uint32_t divisor(struct draw *x, uint32_t n, uint32_t unit)
{
    uint32_t parts = n / unit, part = 1 + below(x, parts);
    while (parts % part)
        part--;
    return part * unit;
}

static const char *scaling(struct draw *x)
{
    return WORD_OF(x, "none", "linear(factor=4)", "llama3(factor=8, low=1, high=4, original=16)",
                   "yarn(factor=4, original=8)",
                   "yarn(factor=16, original=4, fast=16, slow=2, mscale=0.7, mscale_all=0.7)");
}

/* says whether they turn */
static bool draw_rope(struct draw *x, uint32_t head)
{
    if (head % 2 || once_in(x, 4))
        return false;
    if (once_in(x, 2)) {
        strbuf_printf(x->out, ", rope=%s", WORD_OF(x, "10_000", "500"));
        return true;
    }
    const char *theta = WORD_OF(x, "10_000", "1e6"),
               *pairs = WORD_OF(x, "", ", pairs=adjacent", ", pairs=half");
    uint32_t dims = 2 * (1 + below(x, head / 2));
    bool whole = once_in(x, 2);
    strbuf_printf(x->out, ", rope=rotary(%s", theta);
    if (!whole)
        strbuf_printf(x->out, ", dims=%u", dims);
    strbuf_printf(x->out, "%s, scaling=%s)", pairs, scaling(x));
    return true;
}

static void draw_heads(struct draw *x)
{
    uint32_t heads = x->unit * ONE_OF(x, 1, 1, 2, 2, 3, 4);
    heads = heads > 12 ? x->unit : heads;
    bool mha = once_in(x, 3), standard = x->width % heads == 0 && once_in(x, 2);
    uint32_t kv = once_in(x, 3) ? divisor(x, heads, 1) : divisor(x, heads, x->unit);
    uint32_t head = standard ? x->width / heads : ONE_OF(x, 2, 3, 4, 4, 6, 8);
    strbuf_printf(x->out, "            attn %s(heads=%u", mha ? "mha" : "gqa", heads);
    if (!mha)
        strbuf_printf(x->out, ", kv=%u", kv);
    if (!standard)
        strbuf_printf(x->out, ", head=%u", head);
    bool turned = draw_rope(x, head);
    if (once_in(x, 3))
        strbuf_text(x->out, WORD_OF(x, ", bias=yes", ", qkv_bias=yes"));
    if (once_in(x, 3))
        strbuf_text(x->out, once_in(x, 4) ? ", qk_norm=full" : ", qk_norm=head");
    if (once_in(x, 4))
        strbuf_printf(x->out, ", window=%u", 1 + below(x, x->sequence + 2));
    else if (once_in(x, 6))
        strbuf_printf(x->out, ", chunk=%u", divisor(x, x->sequence, 1));
    perhaps(x, 6, ", softcap=5");
    perhaps(x, 6, ", scale=6");
    perhaps(x, 4, ", sinks=yes");
    if (!turned)
        perhaps(x, 2, ", alibi=yes");
    strbuf_text(x->out, ")\n");
}

static void draw_latent(struct draw *x)
{
    uint32_t heads = x->unit * ONE_OF(x, 1, 2, 3), rank = 4 + below(x, 6), nope = 1 + below(x, 6);
    uint32_t rope = 2 * (1 + below(x, 3)), v = 1 + below(x, 7);
    strbuf_printf(x->out, "            attn mla(heads=%u, ", heads > 12 ? x->unit : heads);
    if (once_in(x, 2))
        strbuf_printf(x->out, "q_rank=%u, ", 5 + below(x, 6));
    strbuf_printf(x->out, "kv_rank=%u, nope=%u, rope=%u, v=%u", rank, nope, rope, v);
    perhaps(x, 3, ", theta=500");
    if (once_in(x, 2))
        strbuf_printf(x->out, ", scaling=%s", scaling(x));
    strbuf_text(x->out, ")\n");
}

/* "geglu(24, bias=yes)" */
static void draw_ffn(struct draw *x, uint32_t width, bool biases)
{
    const char *kind = WORD_OF(x, "gelu", "relu", "relu2", "swiglu", "swiglu", "geglu");
    strbuf_printf(x->out, "%s(%u", kind, width);
    if (biases)
        perhaps(x, 3, ", bias=yes");
    if (kind[0] == 'g')
        perhaps(x, 2, ", approx=none");
    if (kind[0] == 's') {
        perhaps(x, 3, ", limit=0.5");
        perhaps(x, 4, ", alpha=1.702");
        perhaps(x, 4, ", offset=1");
    }
    strbuf_text(x->out, ")");
}

static void draw_router(struct draw *x, uint32_t experts, uint32_t *active)
{
    uint32_t groups = experts % 4 == 0 ? 4 : experts % 3 == 0 ? 3 : 2;
    groups = once_in(x, 3) && experts % groups == 0 ? groups : 1;
    uint32_t pick = groups > 1 ? 1 + below(x, groups) : 1;
    if (*active > experts / groups * pick)
        *active = experts / groups * pick;
    bool bias = once_in(x, 3);
    strbuf_printf(x->out, "                router %s(groups=%u, pick=%u", WORD_OF(x, "softmax", "sigmoid"),
                  groups, pick);
    perhaps(x, 3, ", normalize=no");
    perhaps(x, 3, ", scale=2.5");
    if (bias)
        strbuf_text(x->out, WORD_OF(x, ", bias=yes", ", bias=yes, rate=0.01"));
    perhaps(x, 5, ", linear_bias=yes");
    strbuf_text(x->out, ")\n");
}

static void draw_experts(struct draw *x)
{
    uint32_t experts = ONE_OF(x, 2, 3, 4, 4, 6, 8, 8, 12), active = 1 + below(x, 3);
    uint32_t width = 2 * x->unit * (1 + below(x, 3));
    active = active > experts ? experts : active;
    bool shared = once_in(x, 3);
    strbuf_text(x->out, "            moe ");
    draw_ffn(x, width, !shared);
    strbuf_text(x->out, " {\n");
    draw_router(x, experts, &active);
    strbuf_printf(x->out, "                experts %u\n                active %u\n", experts, active);
    if (shared)
        strbuf_printf(x->out, "                shared %u\n", 1 + below(x, 2));
    if (once_in(x, 6))
        strbuf_printf(x->out, "                capacity %s\n", WORD_OF(x, "1.0", "1.25", "2"));
    perhaps(x, 3, "                balance 0.01\n");
    strbuf_text(x->out, "            }\n");
}

static void draw_layer(struct draw *x, bool experts, bool latent)
{
    bool parallel = x->pre && once_in(x, 5), one = once_in(x, 2);
    strbuf_printf(x->out, "        layer%s {\n", !parallel ? "" : one ? " parallel" : " parallel(norms=2)");
    if (latent)
        draw_latent(x);
    else
        draw_heads(x);
    if (experts) {
        draw_experts(x);
    } else {
        strbuf_text(x->out, "            ffn ");
        draw_ffn(x, x->unit * (2 + below(x, 7)), true);
        strbuf_text(x->out, "\n");
    }
    strbuf_text(x->out, "        }\n");
}

/* all dense, all experts, or both in turn; attention of one kind in most models.  Are there experts? */
static bool draw_layers(struct draw *x)
{
    bool any = false;
    uint32_t kinds = 1 + below(x, MOST_KINDS), family = below(x, 3), layers = 0, attention = below(x, 7);
    for (uint32_t i = 0; i < kinds; i++) {
        uint32_t inside = 1 + once_in(x, 4), times = 1 + below(x, i ? 3 : 5);
        strbuf_printf(x->out, "    repeat %u {\n", times);
        for (uint32_t k = 0; k < inside; k++) {
            bool experts = family == 1 || (family == 2 && ((i + k) % 2 == 1 || kinds == 1));
            any |= experts;
            draw_layer(x, experts, attention < 2 || (attention == 2 && once_in(x, 2)));
        }
        strbuf_text(x->out, "    }\n");
        layers += inside * times;
        if (layers >= 8)
            break;
    }
    return any;
}

static void draw_norm(struct draw *x)
{
    bool rms = once_in(x, 2);
    x->pre = !once_in(x, 3);
    strbuf_printf(x->out, "    norm %s(eps=%s", rms ? "rmsnorm" : "layernorm",
                  WORD_OF(x, "1e-5", "1e-6", "1e-3"));
    if (!x->pre)
        strbuf_text(x->out, WORD_OF(x, ", place=post", ", place=both"));
    if (!rms)
        perhaps(x, 2, ", bias=no");
    strbuf_text(x->out, ")\n");
}

/* says whether a prediction module has experts */
static bool draw_ends(struct draw *x)
{
    bool predict = once_in(x, 5), experts = false;
    strbuf_text(x->out, "    embed tokens");
    const char *scale = WORD_OF(x, "", "", "scale=yes", "scale=3.5");
    bool norm = !predict && once_in(x, 4);
    if (*scale || norm)
        strbuf_printf(x->out, "(%s%s%s)", scale, *scale && norm ? ", " : "", norm ? "norm=yes" : "");
    strbuf_text(x->out, "\n");
    if (!predict && once_in(x, 3))
        strbuf_printf(x->out, "    embed positions(%u)\n", x->sequence + below(x, 4));
    strbuf_printf(x->out, "    head %s(scale=", WORD_OF(x, "tied", "untied"));
    strbuf_text(x->out, WORD_OF(x, "1", "1", "0.5"));
    perhaps(x, 4, ", softcap=8");
    perhaps(x, 4, ", bias=yes");
    strbuf_text(x->out, ")\n");
    if (predict) {
        strbuf_printf(x->out, "    predict %u ahead", 1 + below(x, 2));
        bool own = once_in(x, 2);
        experts = own && once_in(x, 2);
        strbuf_text(x->out, own ? " {\n" : "");
        if (own)
            draw_layer(x, experts, once_in(x, 4));
        strbuf_text(x->out, !own ? "\n" : once_in(x, 2) ? "        weight 0.1\n    }\n" : "    }\n");
    }
    return experts;
}

static void draw_precision(struct draw *x)
{
    uint32_t kind = below(x, 4);
    const char *moments =
        WORD_OF(x, "moments=fp32", "moments=bf16", "moments=bf16, reduce=fp32", "grads=bf16", "master=bf16",
                "master=bf16, grads=bf16, moments=bf16", "reduce=bf16", "grads=bf16, reduce=fp32", "master=bf16, reduce=bf16");
    if (kind < 2)
        strbuf_text(x->out, "    precision fp32\n");
    else if (kind == 2)
        strbuf_printf(x->out, "    precision bf16(%s)\n", moments);
    else
        strbuf_printf(x->out, "    precision fp8(recipe=%s, %s)\n",
                      WORD_OF(x, "tensor", "row", "block", "mx"), moments);
}

static void draw_train(struct draw *x, bool experts)
{
    uint32_t batch = ONE_OF(x, 8, 12, 16, 16, 20, 24, 32);
    bool tokens = once_in(x, 3);
    strbuf_printf(x->out, "train {\n    sequence %u\n    batch %u %s\n", x->sequence,
                  tokens ? batch * x->sequence : batch, tokens ? "tokens" : "sequences");
    draw_precision(x);
    strbuf_printf(x->out, "    optimizer %s\n",
                  WORD_OF(x, "adamw(lr=1e-3)", "adamw(lr=1e-3)",
                          "adamw(lr=2e-3, beta1=0.8, beta2=0.99, eps=1e-6, weight_decay=0)", "sgd(lr=0.02)",
                          "sgd(lr=0.02, momentum=0.9)"));
    strbuf_text(x->out, WORD_OF(x, "", "    lr_schedule constant(warmup=2)\n",
                                "    lr_schedule linear(warmup=1, decay=20, min=1e-5)\n",
                                "    lr_schedule cosine(decay=20)\n",
                                "    lr_schedule wsd(warmup=1, stable=3, decay=8, min=1e-5)\n"));
    strbuf_text(x->out, WORD_OF(x, "", "    clip none\n", "    clip 0.5\n"));
    strbuf_text(x->out,
                WORD_OF(x, "", "    init normal(std=0.05)\n", "    init normal(std=0.1, residual=no)\n"));
    if (experts && once_in(x, 5))
        strbuf_printf(x->out, "    expert_room %s\n", WORD_OF(x, "1.5", "3"));
    perhaps(x, 4, "    seed 7\n");
    strbuf_text(x->out, "}\n");
}

char *random_model(struct arena *a, uint64_t *state)
{
    struct strbuf b = {0};
    struct draw x = {.state = state, .out = &b};
    x.unit = ONE_OF(&x, 1, 2, 2, 3, 4, 4, 4, 6);
    x.width = ONE_OF(&x, 8, 10, 12, 16, 16, 18, 20, 24);
    x.sequence = ONE_OF(&x, 8, 8, 12, 16, 16, 24);
    uint32_t vocab = once_in(&x, 4) ? 71 + below(&x, 200) : 31 + below(&x, 40);
    bool experts;
    strbuf_printf(&b, "llmc 1\nmodel drawn {\n    vocab %u\n    width %u\n", vocab, x.width);
    draw_norm(&x);
    experts = draw_layers(&x);
    experts |= draw_ends(&x);
    strbuf_text(&b, "}\n");
    draw_train(&x, experts);
    char *text = arena_strdup(a, b.text);
    strbuf_free(&b);
    return text;
}
