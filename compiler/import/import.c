#include "compiler/import/import.h"

#include "compiler/import/families.h"
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

char *import_huggingface(struct arena *a, struct diag *d, const struct source *source, const char *name,
                         const char *left_out)
{
    json_t *root = fields_parse(d, source);
    if (!root)
        return NULL;
    struct fields f = {.arena = a, .diag = d, .source = source, .object = root, .left_out = left_out}, text;
    struct fields *of = &f;
    if (fields_has(&f, "text_config") && fields_has(&f, "vision_config")) { /* a language model that sees */
        text = fields_of(&f, "text_config");
        fields_refuse(&f, "vision_config", "images beside text");
        of = &text;
    }
    const char *type = fields_word(of, "model_type", "");
    struct described m = {.name = clean_name(a, name && *name ? name : type)};
    char *out = NULL;
    if (family_read(of, type, &m)) {
        fields_ignore(of, elsewhere);
        note_dropout(of);
        fields_rest(of);
        out = describe(a, &m, of->notes.at, of->notes.n);
    } else {
        fields_error(of, "model_type", "models of type '%.60s' are not known", type);
        diag_help(d, "known are %s", family_names(a));
    }
    json_decref(root);
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
