/* Parts that configurations share; see parts.h. */

#include "compiler/import/parts.h"

#include <math.h>
#include <string.h>

enum { MOST_LAYERS = 10000 };

static const char layers[] = "num_hidden_layers|n_layer|n_layers";

/* Sizes, and one layer that all layers are copies of at first. */
struct described_layer *part_sizes(struct fields *f, struct described *m)
{
    m->vocab = fields_count(f, "vocab_size", FIELD_REQUIRED);
    m->width = fields_count(f, "hidden_size|n_embd|n_embed|d_model", FIELD_REQUIRED);
    m->nlayers = fields_count(f, layers, FIELD_REQUIRED);
    m->sequence = fields_count(f, "max_position_embeddings|n_positions|n_ctx|seq_length|max_seq_len", 0);
    if (m->nlayers > MOST_LAYERS)
        fields_error(f, layers, "more than %d layers", MOST_LAYERS);
    m->nlayers = m->nlayers > MOST_LAYERS ? MOST_LAYERS : m->nlayers;
    m->layers = ARENA_ARRAY(f->arena, struct described_layer, m->nlayers + 1u);
    struct described_attention *x = &m->layers[0].attention;
    x->heads = fields_count(f, "num_attention_heads|n_head|n_heads", FIELD_REQUIRED);
    x->kv = fields_count(f, "num_key_value_heads", x->heads);
    x->head = fields_count(f, "head_dim", x->heads ? m->width / x->heads : 0);
    return &m->layers[0];
}

void part_copy_layers(struct described *m)
{
    for (uint32_t i = 1; i < m->nlayers; i++)
        m->layers[i] = m->layers[0];
}

void part_rms(struct fields *f, struct described *m, double eps)
{
    m->eps = fields_real(f, "rms_norm_eps", eps);
}

void part_layernorm(struct fields *f, struct described *m, const char *eps, bool bias)
{
    m->layernorm = true;
    m->norm_bias = bias;
    m->eps = fields_real(f, eps, 1e-5);
}

/* The activation of the inner layer, gated or not. */
void part_activation(struct fields *f, struct described_ffn *ffn, const char *field, const char *usual, bool gated)
{
    const char *word = fields_word(f, field, usual);
    static const struct {
        const char *word, *plain, *gated;
        bool exact;
    } known[] = {{"silu", NULL, "swiglu", false},       {"swish", NULL, "swiglu", false},
                 {"gelu", "gelu", "geglu", true},       {"gelu_new", "gelu", "geglu", false},
                 {"gelu_fast", "gelu", "geglu", false}, {"gelu_pytorch_tanh", "gelu", "geglu", false},
                 {"relu", "relu", NULL, false},         {"relu2", "relu2", NULL, false}};
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (!strcmp(word, known[i].word) && (gated ? known[i].gated : known[i].plain)) {
            ffn->kind = gated ? known[i].gated : known[i].plain;
            ffn->exact = known[i].exact;
            return;
        }
    ffn->kind = gated ? "swiglu" : "gelu";
    fields_refuse(f, field, "activation '%.60s'%s", word, gated ? " in a gated layer" : "");
}

static const char *yarn(struct fields *s, uint32_t positions)
{
    double factor = fields_real(s, "factor", 1);
    uint32_t original = fields_count(s, "original_max_position_embeddings", positions);
    double fast = fields_real(s, "beta_fast", 32), slow = fields_real(s, "beta_slow", 1);
    double scale = fields_real(s, "mscale", 1), all = fields_real(s, "mscale_all_dim", 0);
    if (fields_has(s, "attention_factor"))
        fields_refuse(s, "attention_factor", "a magnitude of its own for stretched positions");
    if (!fields_flag(s, "truncate", true))
        fields_refuse(s, "truncate", "bounds of stretched frequencies that are not rounded");
    const char *text = arena_printf(s->arena, "yarn(factor=%s, original=%u", describe_number(s->arena, factor),
                                    original);
    const struct {
        const char *name;
        double value, usual;
    } more[] = {{"fast", fast, 32}, {"slow", slow, 1}, {"mscale", scale, 1}, {"mscale_all", all, 0}};
    for (size_t i = 0; i < ARRAY_LEN(more); i++)
        if (more[i].value != more[i].usual)
            text = arena_printf(s->arena, "%s, %s=%s", text, more[i].name, describe_number(s->arena, more[i].value));
    return arena_printf(s->arena, "%s)", text);
}

/* Stretching to longer sequences: of "rope_scaling", or of the newer "rope_parameters", which hold theta as well. */
static const char *stretching(struct fields *f, const char *field, struct fields *s, uint32_t positions)
{
    const char *kind = fields_word(s, "rope_type|type", "default");
    const char *text = NULL;
    fields_ignore(s, "rope_theta type");
    if (!strcmp(kind, "linear"))
        text = arena_printf(f->arena, "linear(factor=%s)", describe_number(f->arena, fields_real(s, "factor", 1)));
    else if (!strcmp(kind, "yarn"))
        text = yarn(s, positions);
    else if (!strcmp(kind, "llama3"))
        text = arena_printf(f->arena, "llama3(factor=%s, low=%s, high=%s, original=%u)",
                            describe_number(f->arena, fields_real(s, "factor", 8)),
                            describe_number(f->arena, fields_real(s, "low_freq_factor", 1)),
                            describe_number(f->arena, fields_real(s, "high_freq_factor", 4)),
                            fields_count(s, "original_max_position_embeddings", positions));
    else if (strcmp(kind, "default") != 0) {
        fields_refuse(f, field, "positions stretched in the way '%.60s'", kind);
        return NULL;
    }
    fields_rest(s);
    return text;
}

struct described_rope part_rope(struct fields *f, const struct described *m, double theta, const char *share,
                                double usual_share, uint32_t head)
{
    struct described_rope r = {0};
    struct fields parameters = fields_of(f, "rope_parameters"), scaling = fields_of(f, "rope_scaling");
    r.theta = fields_real(&parameters, "rope_theta", fields_real(f, "rope_theta|rotary_emb_base", theta));
    double part = share ? fields_real(&parameters, share, fields_real(f, share, usual_share)) : 1;
    uint32_t dims = (uint32_t)lrint(fmin(fmax(part, 0), 1) * head);
    r.dims = dims == head ? 0 : dims / 2 * 2;
    if (parameters.object)
        r.scaling = stretching(f, "rope_parameters", &parameters, m->sequence);
    if (scaling.object)
        r.scaling = stretching(f, "rope_scaling", &scaling, m->sequence);
    for (size_t i = 0; i < parameters.notes.n + scaling.notes.n; i++)
        vec_push(f->arena, &f->notes,
                 i < parameters.notes.n ? parameters.notes.at[i] : scaling.notes.at[i - parameters.notes.n]);
    return r;
}

void part_tied(struct fields *f, struct described *m, bool otherwise)
{
    m->tied = fields_flag(f, "tie_word_embeddings", otherwise);
}

/* Layers that see a window: by the newer "layer_types", else each for which sliding(i) holds. */
void part_windows(struct fields *f, struct described *m, uint32_t window, uint32_t pattern, uint32_t whole)
{
    json_t *types = fields_list(f, "layer_types");
    for (uint32_t i = 0; i < m->nlayers; i++) {
        const char *type = types ? json_string_value(json_array_get(types, i)) : NULL;
        bool slides = type ? !strcmp(type, "sliding_attention") : i % pattern != whole;
        if (type && !slides && strcmp(type, "full_attention") != 0) {
            fields_refuse(f, "layer_types", "layers of kind '%.60s'", type);
            return;
        }
        m->layers[i].attention.window = slides ? window : 0;
    }
}
