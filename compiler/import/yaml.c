/* YAML by libyaml, the only user of it.  The nodes of its document become values one by one, by their numbers, so
 * nothing here recurses, and what aliases name is shared. */

#include "compiler/import/yaml.h"

#include <string.h>

#ifdef LLMC_YAML
#include <yaml.h>

const bool yaml_is_built = true;

struct reader {
    struct arena *arena;
    const struct source *source;
    yaml_document_t *document;
    struct yaml_value *values;
};

/* to the end of the node's first line */
static struct span place(const struct reader *r, const yaml_node_t *n)
{
    size_t at = n->start_mark.index, end = n->end_mark.index, size = r->source->size;
    at = at < size ? at : size;
    end = end < size ? end : size;
    end = end > at ? end : at;
    const char *line = memchr(r->source->text + at, '\n', end - at);
    end = line ? (size_t)(line - r->source->text) : end;
    return (struct span){r->source, (uint32_t)at, (uint32_t)(end > at ? end - at : 1)};
}

static const struct yaml_value *value_of(const struct reader *r, int node)
{
    return &r->values[node - 1]; /* libyaml counts from 1 */
}

static void read_list(const struct reader *r, const yaml_node_t *n, struct yaml_value *v)
{
    v->form = YAML_LIST;
    v->n = (uint32_t)(n->data.sequence.items.top - n->data.sequence.items.start);
    v->values = ARENA_ARRAY(r->arena, const struct yaml_value *, v->n + 1u);
    for (uint32_t i = 0; i < v->n; i++)
        v->values[i] = value_of(r, n->data.sequence.items.start[i]);
}

static void read_map(const struct reader *r, const yaml_node_t *n, struct yaml_value *v)
{
    v->form = YAML_MAP;
    v->n = (uint32_t)(n->data.mapping.pairs.top - n->data.mapping.pairs.start);
    v->keys = ARENA_ARRAY(r->arena, const struct yaml_value *, v->n + 1u);
    v->values = ARENA_ARRAY(r->arena, const struct yaml_value *, v->n + 1u);
    for (uint32_t i = 0; i < v->n; i++) {
        v->keys[i] = value_of(r, n->data.mapping.pairs.start[i].key);
        v->values[i] = value_of(r, n->data.mapping.pairs.start[i].value);
    }
}

static void read_value(const struct reader *r, const yaml_node_t *n, struct yaml_value *v)
{
    v->at = place(r, n);
    v->text = "";
    if (n->type == YAML_SEQUENCE_NODE) {
        read_list(r, n, v);
    } else if (n->type == YAML_MAPPING_NODE) {
        read_map(r, n, v);
    } else {
        v->text = arena_strndup(r->arena, (const char *)n->data.scalar.value, n->data.scalar.length);
        v->plain = n->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    }
}

static const struct yaml_value *read_document(struct arena *a, const struct source *s, yaml_document_t *document)
{
    size_t n = (size_t)(document->nodes.top - document->nodes.start);
    struct reader r = {a, s, document, ARENA_ARRAY(a, struct yaml_value, n + 1)};
    r.values[0] = (struct yaml_value){.text = "", .at = {s, 0, 1}};
    for (size_t i = 0; i < n; i++)
        read_value(&r, &document->nodes.start[i], &r.values[i]);
    return &r.values[0];
}

const struct yaml_value *yaml_tree(struct arena *a, struct diag *d, const struct source *s)
{
    yaml_parser_t parser;
    yaml_document_t document;
    const struct yaml_value *root = NULL;
    if (!yaml_parser_initialize(&parser)) {
        diag_error(d, (struct span){s, 0, 1}, "yaml", "libyaml did not start");
        return NULL;
    }
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)s->text, s->size);
    if (!yaml_parser_load(&parser, &document)) {
        size_t at = parser.problem_mark.index ? parser.problem_mark.index : parser.problem_offset;
        at = at < s->size ? at : s->size;
        diag_error(d, (struct span){s, (uint32_t)at, 1}, "yaml", "%s", parser.problem ? parser.problem : "no YAML");
    } else {
        root = read_document(a, s, &document);
        yaml_document_delete(&document);
    }
    yaml_parser_delete(&parser);
    return root;
}

#else

const bool yaml_is_built = false;

const struct yaml_value *yaml_tree(struct arena *a, struct diag *d, const struct source *s)
{
    (void)a;
    diag_error(d, (struct span){s, 0, 1}, "yaml", "this llmc was built without libyaml, so it reads no YAML");
    diag_help(d, "install libyaml-dev and build again");
    return NULL;
}

#endif

const struct yaml_value *yaml_member(const struct yaml_value *v, const char *key)
{
    const struct yaml_value *found = NULL;
    for (uint32_t i = 0; v->form == YAML_MAP && i < v->n; i++)
        if (v->keys[i]->form == YAML_TEXT && !strcmp(v->keys[i]->text, key))
            found = v->values[i];
    return found;
}
