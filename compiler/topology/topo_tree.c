/* Questions that readers ask of an element tree, wherever it comes from. */

#include "compiler/topology/topo_xml.h"

#include <string.h>

struct xml_attr *xml_attr(const struct xml_element *e, const char *name)
{
    for (uint32_t i = 0; i < e->nattrs; i++)
        if (!strcmp(e->attrs[i].name, name))
            return &e->attrs[i];
    return NULL;
}

struct span xml_value_span(const struct xml_attr *attr, size_t from, size_t length)
{
    if (!attr->exact || from > attr->at.length)
        return attr->at;
    size_t left = attr->at.length - from;
    return (struct span){attr->at.source, attr->at.start + (uint32_t)from, (uint32_t)(length < left ? length : left)};
}
