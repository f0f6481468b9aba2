/* In the place of libxml2: the tree that explore/tree.c wrote lies beside a cluster file's text, in NAME.tree. */

#include "compiler/topology/topo_xml.h"

#include <stdlib.h>

struct reader {
    struct arena *arena;
    const struct source *source;
    const char *at;
};

static uint32_t number(struct reader *r)
{
    char *end;
    uint32_t n = (uint32_t)strtoul(r->at, &end, 10);
    r->at = end + 1;
    return n;
}

static const char *text(struct reader *r, uint32_t *length)
{
    *length = number(r);
    const char *s = arena_strndup(r->arena, r->at, *length);
    r->at += *length + 1;
    return s;
}

static struct span place(struct reader *r)
{
    uint32_t start = number(r);
    return (struct span){r->source, start, number(r)};
}

static struct xml_element *element(struct reader *r, struct xml_element *parent)
{
    struct xml_element *e = ARENA_NEW(r->arena, struct xml_element), **next = &e->child;
    uint32_t length;
    e->parent = parent;
    e->name = text(r, &length);
    e->at = place(r);
    e->text = place(r);
    e->end = number(r);
    e->nattrs = number(r);
    e->attrs = ARENA_ARRAY(r->arena, struct xml_attr, e->nattrs);
    for (uint32_t i = 0; i < e->nattrs; i++) {
        struct xml_attr *a = &e->attrs[i];
        a->name = text(r, &length);
        a->value = text(r, &a->length);
        a->name_at = place(r);
        a->at = place(r);
        a->exact = number(r) != 0;
    }
    for (uint32_t left = number(r); left; left--) {
        e->last_child = *next = element(r, e);
        next = &e->last_child->next;
    }
    return e;
}

struct xml_element *xml_parse(struct arena *a, struct diag *d, const struct source *s)
{
    const struct source *tree = source_read(a, d, arena_printf(a, "%s.tree", s->name), SIZE_MAX);
    struct reader r = {a, s, tree ? tree->text : NULL};
    return tree ? element(&r, NULL) : NULL;
}
