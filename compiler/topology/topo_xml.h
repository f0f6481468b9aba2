#ifndef LLMC_TOPO_XML_H
#define LLMC_TOPO_XML_H

/* XML text -> a plain element tree with exact byte positions.  The only user of libxml2; what comes out needs
 * none.
 *
 * Only well-formed UTF-8 without DOCTYPE, namespaces, entities of its own, or more than XML_DEPTH_MAX levels
 * and XML_ELEMENTS_MAX elements is accepted.  Nothing is ever fetched.  Comments and processing instructions
 * are dropped. The tree lives in the arena and points into nothing of libxml2's. */

#include "compiler/support/diag.h"

#include <stdbool.h>
#include <stdint.h>

#define XML_ELEMENTS_MAX 1000000u
#define XML_DEPTH_MAX 64u
#define XML_ATTRIBUTES_MAX 64u /* per element */

struct xml_attr {
    const char *name, *value; /* value: entities resolved, blanks normalised */
    uint32_t length;          /* of value */
    struct span name_at, at;  /* at: what stands between the quotes */
    bool exact;               /* byte i of value is byte i of `at` */
    bool valid;               /* set by whoever checked the value: integer or real hold it */
    uint64_t integer;
    double real;
};

struct xml_element {
    const char *name;
    struct span at;   /* the name in the start tag */
    struct span text; /* the first character data in it that is not blank; length 0 when there is none */
    uint32_t end;     /* byte behind the whole element */
    uint32_t nattrs;
    struct xml_attr *attrs;
    struct xml_element *parent, *next, *child, *last_child;
};

/* The root element; NULL after at least one error. */
struct xml_element *xml_parse(struct arena *a, struct diag *d, const struct source *s);

/* the attribute of that name, or NULL */
struct xml_attr *xml_attr(const struct xml_element *e, const char *name);
/* `length` bytes from byte `from` of the value; the whole value where positions inside it are not known */
struct span xml_value_span(const struct xml_attr *attr, size_t from, size_t length);

#endif
