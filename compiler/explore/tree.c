/* An element tree as text: numbers, each with a blank behind it, and strings, each with its length before it.  An
 * element is its name, the places of the name and of its text, its end, its attributes behind their number, and its
 * children behind theirs.  module/xml.c reads it. */

#include "compiler/explore/explore.h"

#include <string.h>

static void put_text(const char *s, uint32_t length, struct strbuf *out)
{
    strbuf_printf(out, "%u ", length);
    strbuf_bytes(out, s, length);
    strbuf_char(out, ' ');
}

static void put_place(struct span at, struct strbuf *out)
{
    strbuf_printf(out, "%u %u ", at.start, at.length);
}

static void put_attr(const struct xml_attr *a, struct strbuf *out)
{
    put_text(a->name, (uint32_t)strlen(a->name), out);
    put_text(a->value, a->length, out);
    put_place(a->name_at, out);
    put_place(a->at, out);
    strbuf_printf(out, "%d ", a->exact);
}

void explore_tree(const struct xml_element *e, struct strbuf *out)
{
    uint32_t nchildren = 0;
    put_text(e->name, (uint32_t)strlen(e->name), out);
    put_place(e->at, out);
    put_place(e->text, out);
    strbuf_printf(out, "%u %u ", e->end, e->nattrs);
    for (uint32_t i = 0; i < e->nattrs; i++)
        put_attr(&e->attrs[i], out);
    for (const struct xml_element *x = e->child; x; x = x->next)
        nchildren++;
    strbuf_printf(out, "%u ", nchildren);
    for (const struct xml_element *x = e->child; x; x = x->next)
        explore_tree(x, out);
}
