#include "compiler/import/import.h"

#include "compiler/import/families.h"
#include "compiler/import/megatron.h"
#include "compiler/import/shell.h"
#include "compiler/import/titan.h"
#include "compiler/import/yaml.h"
#include "compiler/model/fmt.h"

#include <ctype.h>
#include <string.h>
#include <unistd.h>

/* fields that say nothing about a training step: of files, tokens, generation and initial values */
static const char elsewhere[] =
    "model_type architectures auto_map transformers_version torch_dtype dtype bos_token_id eos_token_id pad_token_id "
    "sep_token_id decoder_start_token_id initializer_range initializer_factor use_cache cache_implementation "
    "output_attentions output_hidden_states output_router_logits router_aux_loss_coef router_z_loss_coef "
    "pretraining_tp attn_implementation return_dict torchscript task_specific_params summary_type "
    "summary_use_proj summary_activation summary_first_dropout summary_proj_to_logits tokenizer_class prefix "
    "gradient_checkpointing model_max_length use_flash_attn use_bfloat16 is_decoder language_model_type "
    "name_or_path quantization_config keys_to_ignore_at_inference";

/* Steps have no dropout: a note says so where it is not 0. */
static void note_dropout(struct fields *f)
{
    static const char *const names[] = {"attention_dropout",
                                        "hidden_dropout",
                                        "resid_pdrop",
                                        "embd_pdrop",
                                        "attn_pdrop",
                                        "activation_dropout",
                                        "dropout",
                                        "embd_dropout",
                                        "resid_dropout",
                                        "residual_dropout",
                                        "ffn_dropout",
                                        "layerdrop",
                                        "classifier_dropout",
                                        "hidden_dropout_prob",
                                        "attention_probs_dropout_prob"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (fields_real(f, names[i], 0) != 0)
            vec_push(f->arena, &f->notes, arena_printf(f->arena, "%s: steps are without dropout", names[i]));
}

/* a name of the language: letters, digits and underscores */
static const char *clean_name(struct arena *a, const char *name)
{
    char *text = arena_printf(a, "%s%s", isalpha((unsigned char)name[0]) ? "" : "model_", name);
    for (char *c = text; *c; c++)
        *c = isalnum((unsigned char)*c) ? (char)tolower((unsigned char)*c) : '_';
    return text;
}

static char *read_huggingface(struct arena *a, struct diag *d, const struct source *source, json_t *root,
                              const struct import_options *o)
{
    struct fields f = {.arena = a, .diag = d, .source = source, .object = root, .left_out = o->left_out}, text;
    struct fields *of = &f;
    if (fields_has(&f, "text_config") && fields_has(&f, "vision_config")) { /* a language model that sees */
        text = fields_of(&f, "text_config");
        fields_refuse(&f, "vision_config", "images beside text");
        of = &text;
    }
    if (o->nsets)
        diag_error(d, (struct span){0}, "set", "--set %.60s: a config.json leaves nothing open", o->sets[0]);
    const char *type = fields_word(of, "model_type", "");
    struct described m = {.name = clean_name(a, o->name && *o->name ? o->name : type)};
    if (family_read(of, type, &m)) {
        fields_ignore(of, elsewhere);
        note_dropout(of);
        fields_rest(of);
        return describe(a, &m, of->notes.at, of->notes.n);
    }
    fields_error(of, "model_type", "models of type '%.60s' are not known", type);
    diag_help(d, "known are %s", family_names(a));
    return NULL;
}

/* ---- other stacks ---- */

static const char *text_of(struct arena *a, struct strbuf *b)
{
    const char *text = arena_strdup(a, b->text ? b->text : "");
    strbuf_free(b);
    return text;
}

/* What is set by NAME=VALUE: a setting where the table has its name, else a variable of a script. */
static size_t take_sets(const struct args *x, const struct import_options *o, bool script, const char **variables)
{
    size_t n = 0;
    for (size_t i = 0; i < o->nsets; i++) {
        const char *set = o->sets[i], *value = strchr(set, '=');
        size_t length = value ? (size_t)(value - set) : strlen(set);
        const char *key = arg_key(x->givens->arena, set, length);
        if (!value) {
            diag_error(x->givens->diag, (struct span){0}, "set", "--set %.60s: write NAME=VALUE", set);
        } else if (arg_known(x, key) && strcmp(key, "world_size") != 0) {
            struct given *at = given_add(x->givens, key, key, (struct span){0});
            at->set = true;
            given_value(x->givens, at, value + 1);
        } else if (!strcmp(key, "WORLD_SIZE") && !script) {
            struct given *at = given_add(x->givens, "WORLD_SIZE", "world_size", (struct span){0});
            at->set = true;
            given_value(x->givens, at, value + 1);
        } else if (script) {
            variables[n++] = set;
        } else {
            diag_error(x->givens->diag, (struct span){0}, "set", "--set %.60s: no such setting is known", set);
        }
    }
    return n;
}

static char *read_megatron(struct givens *g, const struct import_options *o)
{
    struct args x = megatron_args(g);
    struct described m = {.name = clean_name(g->arena, o->name && *o->name ? o->name : "imported")};
    struct strbuf train = {0}, plan = {0};
    const char **variables = ARENA_ARRAY(g->arena, const char *, o->nsets + 1);
    struct givens set = {.arena = g->arena, .diag = g->diag, .source = g->source};
    struct args only_set = megatron_args(&set);
    size_t n = take_sets(&only_set, o, g->dashes, variables);
    if (!(g->dashes ? shell_read(g, variables, n) : yaml_read(g)) || diag_errors(g->diag))
        return NULL;
    for (size_t i = 0; i < set.all.n; i++) /* behind what the file says, which they beat */
        vec_push(g->arena, &g->all, set.all.at[i]);
    given_leave_out(g);
    megatron_model(&x, &m);
    megatron_train(&x, &train);
    megatron_plan(&x, &m, &plan);
    arg_rest(&x);
    m.train = text_of(g->arena, &train);
    m.plan = text_of(g->arena, &plan);
    return diag_errors(g->diag) ? NULL : describe(g->arena, &m, g->notes.at, g->notes.n);
}

/* ---- which form a file has ---- */

enum form { FORM_JSON, FORM_TOML, FORM_YAML, FORM_PYTHON, FORM_SHELL };

/* the length of a name with dots and dashes, as keys have it */
static size_t key_length(const char *s)
{
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_' || s[n] == '.' || (s[n] == '-' && n))
        n++;
    return n;
}

/* by the first line that is neither empty nor a comment, which begins at *at */
static enum form form_of(const struct source *source, size_t *at)
{
    static const char *const python[] = {"import ", "from ", "def ", "class ", "@", "\"\"\""};
    const char *s = source->text;
    while (isspace((unsigned char)*s) || *s == '#')
        s += *s == '#' ? strcspn(s, "\n") : 1;
    size_t key = key_length(s), blanks = strspn(s + key, " \t");
    *at = (size_t)(s - source->text);
    if (*s == '[' && key_length(s + 1) && !isdigit((unsigned char)s[1]) && s[1 + key_length(s + 1)] == ']')
        return FORM_TOML;
    if (*s == '{' || *s == '[')
        return FORM_JSON;
    for (size_t i = 0; i < ARRAY_LEN(python); i++)
        if (!strncmp(s, python[i], strlen(python[i])))
            return FORM_PYTHON;
    if (!strncmp(s, "---", 3) && s[3] != '-' && !isalpha((unsigned char)s[3]))
        return FORM_YAML;
    if (key && blanks && s[key + blanks] == '=')
        return FORM_TOML;
    return key && s[key + blanks] == ':' && strchr(" \t\r\n", s[key + blanks + 1]) ? FORM_YAML : FORM_SHELL;
}

static char *read_form(struct arena *a, struct diag *d, const struct source *source, const struct import_options *o)
{
    struct givens g = {.arena = a, .diag = d, .source = source, .left_out = o->left_out};
    size_t at;
    enum form form = form_of(source, &at);
    json_t *root = NULL;
    char *out = NULL;
    switch (form) {
    case FORM_JSON:
        root = fields_parse(d, source);
        if (root && titan_is(root))
            out = titan_read(&g, root, o, clean_name(a, o->name && *o->name ? o->name : "imported"));
        else if (root)
            out = read_huggingface(a, d, source, root, o);
        json_decref(root);
        return out;
    case FORM_TOML:
        return titan_read(&g, NULL, o, clean_name(a, o->name && *o->name ? o->name : "imported"));
    case FORM_PYTHON:
        diag_error(d, (struct span){source, (uint32_t)at, 1}, "python",
                   "a Python program cannot be read without running it");
        diag_help(d,
                  "torchtitan writes its configuration as JSON with --debug.save_config_file, Megatron-Bridge as YAML "
                  "with logger.save_config_filepath");
        return NULL;
    case FORM_YAML:
    case FORM_SHELL:
        g.dashes = form == FORM_SHELL;
        return read_megatron(&g, o);
    }
    return NULL;
}

char *import_model(struct arena *a, struct diag *d, const struct source *source, const struct import_options *o)
{
    char *out = read_form(a, d, source, o);
    if (!out || diag_errors(d))
        return NULL;
    struct source own = {"model.llm", out, strlen(out), false};
    return fmt_text(a, d, &own);
}

void import_index(struct arena *a, struct diag *d, const char *config, uint64_t *bytes, uint64_t *parameters)
{
    enum { MOST = 64 << 20 };
    const char *slash = strrchr(config, '/');
    const char *path = arena_printf(a, "%.*smodel.safetensors.index.json", slash ? (int)(slash + 1 - config) : 0,
                                    config);
    *bytes = *parameters = 0;
    if (access(path, F_OK) != 0)
        return;
    struct source *s = source_read(a, d, path, MOST);
    json_t *root = s ? fields_parse(d, s) : NULL, *about = json_object_get(root, "metadata");
    json_t *size = json_object_get(about, "total_size"), *count = json_object_get(about, "total_parameters");
    if (json_is_number(size) && json_number_value(size) > 0 && json_number_value(size) < 1e18)
        *bytes = (uint64_t)json_number_value(size);
    if (json_is_number(count) && json_number_value(count) > 0 && json_number_value(count) < 1e18)
        *parameters = (uint64_t)json_number_value(count);
    json_decref(root);
}
