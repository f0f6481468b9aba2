/* YAML by libyaml, the only user of it: configurations that Megatron-Bridge writes for logger.save_config_filepath
 * (src/megatron/bridge/training/utils/config_utils.py at 067f987d), and those that Megatron-LM takes by --yaml-cfg
 * (megatron/training/yaml_arguments.py at d98e8a64).  A mapping with _target_ that is not to be called, or that takes
 * values, is a value: a function, a dtype, an enumerator.
 *
 * Aliases are shared nodes of the document, so depth and the number of visits are bounded. */

#include "compiler/import/yaml.h"

#include <string.h>

#ifdef LLMC_YAML
#include "compiler/support/strbuf.h"

#include <yaml.h>

const bool yaml_is_built = true;

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

struct reader {
    struct givens *g;
    yaml_document_t *document;
    uint32_t visits;
    bool failed;
};

static struct span place(const struct reader *r, const yaml_node_t *n)
{
    size_t at = n->start_mark.index, end = n->end_mark.index, size = r->g->source->size;
    at = at < size ? at : size;
    end = end < size ? end : size;
    const char *line = memchr(r->g->source->text + at, '\n', end - at);
    end = line ? (size_t)(line - r->g->source->text) : end;
    return (struct span){r->g->source, (uint32_t)at, (uint32_t)(end > at ? end - at : 1)};
}

/* an error at a node, once */
static void fail(struct reader *r, const yaml_node_t *n, const char *what)
{
    if (!r->failed)
        diag_error(r->g->diag, place(r, n), "yaml", "%s", what);
    r->failed = true;
}

static const char *scalar(const struct reader *r, const yaml_node_t *n)
{
    return arena_strndup(r->g->arena, (const char *)n->data.scalar.value, n->data.scalar.length);
}

static bool is_null(const yaml_node_t *n)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    bool found = false;
    for (size_t i = 0; i < ARRAY_LEN(nulls) && n->type == YAML_SCALAR_NODE; i++)
        found |= n->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
                 !strcmp((const char *)n->data.scalar.value, nulls[i]);
    return found || (n->type == YAML_SEQUENCE_NODE && n->data.sequence.items.start == n->data.sequence.items.top) ||
           (n->type == YAML_MAPPING_NODE && n->data.mapping.pairs.start == n->data.mapping.pairs.top);
}

/* what a mapping has under a key, or NULL */
static const yaml_node_t *member(const struct reader *r, const yaml_node_t *n, const char *key)
{
    const yaml_node_t *found = NULL;
    for (yaml_node_pair_t *p = n->data.mapping.pairs.start;
         n->type == YAML_MAPPING_NODE && p < n->data.mapping.pairs.top; p++) {
        const yaml_node_t *k = yaml_document_get_node(r->document, p->key);
        if (k && k->type == YAML_SCALAR_NODE && !strcmp((const char *)k->data.scalar.value, key))
            found = yaml_document_get_node(r->document, p->value);
    }
    return found && found->type == YAML_SCALAR_NODE ? found : NULL;
}

/* the function, dtype or enumerator that a mapping stands for, or NULL */
static const char *target(const struct reader *r, const yaml_node_t *n)
{
    const yaml_node_t *t = member(r, n, "_target_"), *call = member(r, n, "_call_");
    if (!t || !call)
        return NULL;
    return scalar(r, t);
}

static const char *value_text(struct reader *r, const yaml_node_t *n, int depth)
{
    const char *named = target(r, n);
    r->visits += 1 +
                 (n->type == YAML_SCALAR_NODE ? (uint32_t)(n->data.scalar.length / 64) : 0); /* long ones count more */
    if (r->visits > MOST_VISITS)
        fail(r, n, "the file holds more than 50,000 values");
    if (named || n->type == YAML_SCALAR_NODE)
        return named ? named : scalar(r, n);
    if (n->type != YAML_SEQUENCE_NODE || depth > MOST_DEPTH) {
        fail(r, n, depth > MOST_DEPTH ? "lists are nested too deep" : "a mapping cannot stand in a list here");
        return "";
    }
    struct strbuf b = {0};
    strbuf_text(&b, "");
    for (yaml_node_item_t *i = n->data.sequence.items.start; i < n->data.sequence.items.top && !r->failed; i++)
        strbuf_printf(&b, "%s%s", b.length ? "," : "",
                      value_text(r, yaml_document_get_node(r->document, *i), depth + 1));
    r->visits += (uint32_t)(b.length / 64);
    const char *text = arena_strdup(r->g->arena, b.text ? b.text : "");
    strbuf_free(&b);
    return text;
}

static void setting(struct reader *r, const char *name, const yaml_node_t *key, const yaml_node_t *value)
{
    struct givens *g = r->g;
    const char *dot = strrchr(name, '.');
    struct given *x = given_add(g, name, dot ? dot + 1 : name, place(r, key));
    const char *named = target(r, value);
    size_t index = g->all.n - 1;
    x->null = !named && is_null(value);
    if (x->null)
        return;
    if (named || value->type == YAML_SCALAR_NODE) {
        const char *text = value_text(r, value, 0);
        given_value(g, &g->all.at[index], text);
        return;
    }
    for (yaml_node_item_t *i = value->data.sequence.items.start; i < value->data.sequence.items.top && !r->failed; i++)
        given_value(g, &g->all.at[index], value_text(r, yaml_document_get_node(r->document, *i), 1));
}

static bool is_elsewhere(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(elsewhere); i++)
        if (!strcmp(name, elsewhere[i]))
            return true;
    return false;
}

static void walk(struct reader *r, const yaml_node_t *n, const char *path, int depth)
{
    if (depth > MOST_DEPTH || ++r->visits > MOST_VISITS) {
        fail(r, n, depth > MOST_DEPTH ? "mappings are nested too deep" : "the file holds more than 50,000 values");
        return;
    }
    for (yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top && !r->failed; p++) {
        const yaml_node_t *key = yaml_document_get_node(r->document, p->key),
                          *value = yaml_document_get_node(r->document, p->value);
        if (key->type != YAML_SCALAR_NODE) {
            fail(r, key, "a name is a word");
            return;
        }
        if (key->data.scalar.length > 200 || strlen(path) > 1000) {
            fail(r, key, "a name is too long");
            return;
        }
        const char *name = *path ? arena_printf(r->g->arena, "%s.%s", path, scalar(r, key)) : scalar(r, key);
        if (*path ? !strcmp(strrchr(name, '.') + 1, "_target_") : is_elsewhere(name))
            continue;
        if (value->type == YAML_MAPPING_NODE && !target(r, value) && !is_null(value))
            walk(r, value, name, depth + 1);
        else
            setting(r, name, key, value);
    }
}

bool yaml_read(struct givens *g)
{
    yaml_parser_t parser;
    yaml_document_t document;
    if (memchr(g->source->text, GIVEN_OPEN, g->source->size) || !yaml_parser_initialize(&parser)) {
        diag_error(g->diag, (struct span){g->source, 0, 1}, "yaml", "the file holds a byte that no text has");
        return false;
    }
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)g->source->text, g->source->size);
    struct reader r = {.g = g, .document = &document};
    if (!yaml_parser_load(&parser, &document)) {
        size_t at = parser.problem_mark.index ? parser.problem_mark.index : parser.problem_offset;
        at = at < g->source->size ? at : g->source->size;
        diag_error(g->diag, (struct span){g->source, (uint32_t)at, 1}, "yaml", "%s",
                   parser.problem ? parser.problem : "no YAML");
        r.failed = true;
    } else {
        yaml_node_t *root = yaml_document_get_root_node(&document);
        if (root && root->type == YAML_MAPPING_NODE)
            walk(&r, root, "", 0);
        else
            diag_error(g->diag, (struct span){g->source, 0, 1}, "yaml", "no mapping of settings");
        r.failed |= !root || root->type != YAML_MAPPING_NODE;
        yaml_document_delete(&document);
    }
    yaml_parser_delete(&parser);
    return !r.failed;
}

#else

const bool yaml_is_built = false;

bool yaml_read(struct givens *g)
{
    diag_error(g->diag, (struct span){g->source, 0, 1}, "yaml",
               "this llmc was built without libyaml, so it reads no YAML");
    diag_help(g->diag, "install libyaml-dev and build again");
    return false;
}

#endif
