/* Settings in YAML: configurations that Megatron-Bridge writes for logger.save_config_filepath
 * (src/megatron/bridge/training/utils/config_utils.py at 067f987d), and those that Megatron-LM takes by --yaml-cfg
 * (megatron/training/yaml_arguments.py at d98e8a64).  A mapping with _target_ that is not to be called, or that takes
 * values, is a value: a function, a dtype, an enumerator. */

#include "compiler/import/yaml.h"

#include "compiler/support/strbuf.h"

#include <string.h>

enum { MOST_DEPTH = 32, MOST_VISITS = 50000 };

/* sections that say nothing about a step; what mixed_precision and comm_overlap say is in model, optimizer and ddp when
 * a configuration is written */
static const char *const elsewhere[] = {"checkpoint",
                                        "logger",
                                        "tokenizer",
                                        "dataset",
                                        "profiling",
                                        "validation",
                                        "rerun_state_machine",
                                        "straggler",
                                        "nvrx_straggler",
                                        "ft",
                                        "inprocess_restart",
                                        "tensor_inspect",
                                        "env_vars",
                                        "optimizer_config_override_provider",
                                        "mixed_precision",
                                        "comm_overlap"};

struct walk {
    struct givens *g;
    uint32_t visits;
    bool failed;
};

/* an error at a value, once */
static void fail(struct walk *w, const struct yaml_value *v, const char *what)
{
    if (!w->failed)
        diag_error(w->g->diag, v->at, "yaml", "%s", what);
    w->failed = true;
}

static bool is_null(const struct yaml_value *v)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    bool found = v->form != YAML_TEXT && !v->n;
    for (size_t i = 0; i < ARRAY_LEN(nulls) && v->form == YAML_TEXT && v->plain; i++)
        found |= !strcmp(v->text, nulls[i]);
    return found;
}

/* the text that a mapping has under a key, or NULL */
static const char *member(const struct yaml_value *v, const char *key)
{
    const struct yaml_value *found = yaml_member(v, key);
    return found && found->form == YAML_TEXT ? found->text : NULL;
}

/* the function, dtype or enumerator that a mapping stands for, or NULL */
static const char *target(const struct yaml_value *v)
{
    return member(v, "_call_") ? member(v, "_target_") : NULL;
}

static const char *value_text(struct walk *w, const struct yaml_value *v, int depth)
{
    const char *named = target(v);
    w->visits += 1 + (uint32_t)(strlen(v->text) / 64); /* long ones count more */
    if (w->visits > MOST_VISITS)
        fail(w, v, "the file holds more than 50,000 values");
    if (named || v->form == YAML_TEXT)
        return named ? named : v->text;
    if (v->form != YAML_LIST || depth > MOST_DEPTH) {
        fail(w, v, depth > MOST_DEPTH ? "lists are nested too deep" : "a mapping cannot stand in a list here");
        return "";
    }
    struct strbuf b = {0};
    strbuf_text(&b, "");
    for (uint32_t i = 0; i < v->n && !w->failed; i++)
        strbuf_printf(&b, "%s%s", b.length ? "," : "", value_text(w, v->values[i], depth + 1));
    w->visits += (uint32_t)(b.length / 64);
    const char *text = arena_strdup(w->g->arena, b.text ? b.text : "");
    strbuf_free(&b);
    return text;
}

static void setting(struct walk *w, const char *name, const struct yaml_value *key, const struct yaml_value *value)
{
    struct givens *g = w->g;
    const char *dot = strrchr(name, '.');
    struct given *x = given_add(g, name, dot ? dot + 1 : name, key->at);
    const char *named = target(value);
    size_t index = g->all.n - 1;
    x->null = !named && is_null(value);
    if (x->null)
        return;
    if (named || value->form == YAML_TEXT) {
        given_value(g, &g->all.at[index], value_text(w, value, 0));
        return;
    }
    for (uint32_t i = 0; i < value->n && !w->failed; i++)
        given_value(g, &g->all.at[index], value_text(w, value->values[i], 1));
}

static bool is_elsewhere(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(elsewhere); i++)
        if (!strcmp(name, elsewhere[i]))
            return true;
    return false;
}

static void walk(struct walk *w, const struct yaml_value *v, const char *path, int depth)
{
    if (depth > MOST_DEPTH || ++w->visits > MOST_VISITS) {
        fail(w, v, depth > MOST_DEPTH ? "mappings are nested too deep" : "the file holds more than 50,000 values");
        return;
    }
    for (uint32_t i = 0; i < v->n && !w->failed; i++) {
        const struct yaml_value *key = v->keys[i], *value = v->values[i];
        if (key->form != YAML_TEXT) {
            fail(w, key, "a name is a word");
            return;
        }
        if (strlen(key->text) > 200 || strlen(path) > 1000) {
            fail(w, key, "a name is too long");
            return;
        }
        const char *name = *path ? arena_printf(w->g->arena, "%s.%s", path, key->text) : key->text;
        if (*path ? !strcmp(key->text, "_target_") : is_elsewhere(name))
            continue;
        if (value->form == YAML_MAP && !target(value) && !is_null(value))
            walk(w, value, name, depth + 1);
        else
            setting(w, name, key, value);
    }
}

bool yaml_read(struct givens *g)
{
    struct walk w = {.g = g};
    if (yaml_is_built && memchr(g->source->text, GIVEN_OPEN, g->source->size)) {
        diag_error(g->diag, (struct span){g->source, 0, 1}, "yaml", "the file holds a byte that no text has");
        return false;
    }
    const struct yaml_value *root = yaml_tree(g->arena, g->diag, g->source);
    if (!root)
        return false;
    if (root->form != YAML_MAP) {
        diag_error(g->diag, (struct span){g->source, 0, 1}, "yaml", "no mapping of settings");
        return false;
    }
    walk(&w, root, "", 0);
    return !w.failed;
}
