/* Reading XML safely: libxml2's SAX2 callbacks build our own tree.
 *
 * The text is in memory, and known to be UTF-8, before any parser sees it.  DOCTYPE, namespaces, depth and
 * counts are refused as soon as they appear; entity substitution, DTDs, XInclude, catalogues, the network and
 * libxml2's "huge" and "recover" modes are never enabled.  libxml2 prints nothing: its errors arrive here and
 * are put in our words.
 *
 * Positions: in startElementNs the parser stands right behind the last attribute, at byte consumed + (cur -
 * base).
 * '<' cannot stand inside an attribute's value, so the nearest '<' before it starts this tag, and a
 * well-formed start tag is simple to scan again for the exact place of every name and value.  Should the scan
 * disagree with what libxml2 reported, the attributes fall back to the position of their element. */

#include "compiler/topology/topo_xml.h"

#include <libxml/catalog.h>
#include <libxml/parser.h>
#include <libxml/parserInternals.h>
#include <libxml/xmlerror.h>

#include <string.h>
#include <strings.h>

struct reader {
    struct arena *arena;
    struct diag *diag;
    const struct source *source;
    xmlParserCtxtPtr ctxt;
    struct xml_element *root, *open;
    uint32_t nelements, depth;
    bool failed;
};

static const char *text_of(const xmlChar *s)
{
    return (const char *)s;
}

static struct span at_bytes(const struct reader *r, size_t start, size_t length)
{
    size_t size = r->source->size;
    start = start < size ? start : size;
    length = length < size - start ? length : size - start;
    return (struct span){r->source, (uint32_t)start, (uint32_t)length};
}

/* byte of the source that the parser has reached */
static size_t reached(const struct reader *r)
{
    const xmlParserInput *in = r->ctxt->input;
    if (!in || !in->cur || !in->base)
        return 0;
    size_t at = (size_t)in->consumed + (size_t)(in->cur - in->base);
    return at < r->source->size ? at : r->source->size;
}

/* from the nearest `mark` before the parser to where it stands: the tag or reference it is in */
static struct span back_to(const struct reader *r, char mark)
{
    size_t end = reached(r), from = end;
    while (from > 0 && r->source->text[from] != mark)
        from--;
    return at_bytes(r, from, end - from);
}

/* After the first failure nothing more is reported: the rest of a broken file only repeats it. */
static bool fail_first(struct reader *r)
{
    bool first = !r->failed;
    r->failed = true;
    return first;
}

static void stop(struct reader *r)
{
    r->failed = true;
    xmlStopParser(r->ctxt);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static size_t skip_blank(const char *s, size_t i, size_t end)
{
    while (i < end && is_blank(s[i]))
        i++;
    return i;
}

static size_t skip_name(const char *s, size_t i, size_t end)
{
    while (i < end && !is_blank(s[i]) && !strchr("=/>\"'<", s[i]))
        i++;
    return i;
}

/* One `name = "value"` at s[i]; returns the byte behind it, or 0 when the text is not of that form. */
static size_t scan_attribute(const struct reader *r, size_t i, size_t end, struct span *name, struct span *value)
{
    const char *s = r->source->text;
    size_t from = i = skip_blank(s, i, end);
    i = skip_name(s, i, end);
    if (i == from)
        return 0;
    *name = at_bytes(r, from, i - from);
    i = skip_blank(s, i, end);
    if (i >= end || s[i] != '=')
        return 0;
    i = skip_blank(s, i + 1, end);
    if (i >= end || (s[i] != '"' && s[i] != '\''))
        return 0;
    const char *close = memchr(s + i + 1, s[i], end - i - 1);
    if (!close)
        return 0;
    from = i + 1;
    i = (size_t)(close - s);
    *value = at_bytes(r, from, i - from);
    return i + 1;
}

static bool span_is(struct span at, const char *text, size_t length)
{
    return at.length == length && !memcmp(at.source->text + at.start, text, length);
}

/* Places of the element's name and attributes in the source; false when the scan does not agree with the
 * parser. */
static bool place_tag(const struct reader *r, struct xml_element *e)
{
    const char *s = r->source->text;
    size_t end = reached(r), open = end;
    while (open > 0 && s[open - 1] != '<')
        open--;
    if (!open)
        return false;
    size_t i = skip_name(s, open, end);
    e->at = at_bytes(r, open, i - open);
    if (!span_is(e->at, e->name, strlen(e->name)))
        return false;
    for (uint32_t k = 0; k < e->nattrs; k++) {
        struct xml_attr *attr = &e->attrs[k];
        struct span name, value;
        i = scan_attribute(r, i, end, &name, &value);
        if (!i || !span_is(name, attr->name, strlen(attr->name)))
            return false;
        attr->name_at = name;
        attr->at = value;
        attr->exact = span_is(value, attr->value, attr->length);
    }
    return true;
}

static void link_element(struct reader *r, struct xml_element *e)
{
    e->parent = r->open;
    if (!r->open)
        r->root = e;
    else if (r->open->last_child)
        r->open->last_child->next = e;
    else
        r->open->child = e;
    if (r->open)
        r->open->last_child = e;
    r->open = e;
    r->depth++;
    r->nelements++;
}

/* limits and namespaces; false after an error */
static bool may_start(struct reader *r, const char *name, bool namespaced, int nattrs)
{
    struct span at = back_to(r, '<');
    if (namespaced)
        diag_error(r->diag, at, "xml-namespace", "<%s>: namespaces are not used here", name);
    else if (r->depth >= XML_DEPTH_MAX)
        diag_error(r->diag, at, "xml-limit", "elements are nested more than %u deep", XML_DEPTH_MAX);
    else if (r->nelements >= XML_ELEMENTS_MAX)
        diag_error(r->diag, at, "xml-limit", "more than %u elements", XML_ELEMENTS_MAX);
    else if (nattrs < 0 || (uint32_t)nattrs > XML_ATTRIBUTES_MAX)
        diag_error(r->diag, at, "xml-limit", "<%s> has more than %u attributes", name, XML_ATTRIBUTES_MAX);
    else
        return true;
    stop(r);
    return false;
}

/* attributes: per attribute localname, prefix, URI, value, end of value */
static void on_start(void *user, const xmlChar *name, const xmlChar *prefix, const xmlChar *uri, int nnamespaces,
                     const xmlChar **namespaces, int nattrs, int ndefaulted, const xmlChar **attributes)
{
    struct reader *r = ((xmlParserCtxtPtr)user)->_private;
    (void)uri, (void)namespaces, (void)ndefaulted;
    if (r->failed)
        return;
    bool namespaced = prefix || nnamespaces;
    for (int i = 0; i < nattrs; i++)
        namespaced = namespaced || attributes[5 * i + 1];
    if (!may_start(r, text_of(name), namespaced, nattrs))
        return;
    struct xml_element *e = ARENA_NEW(r->arena, struct xml_element);
    e->name = arena_strdup(r->arena, text_of(name));
    e->nattrs = (uint32_t)nattrs;
    e->attrs = ARENA_ARRAY(r->arena, struct xml_attr, e->nattrs);
    for (uint32_t i = 0; i < e->nattrs; i++) {
        const xmlChar **given = attributes + 5 * (size_t)i;
        e->attrs[i].name = arena_strdup(r->arena, text_of(given[0]));
        e->attrs[i].length = (uint32_t)(given[4] - given[3]);
        e->attrs[i].value = arena_strndup(r->arena, text_of(given[3]), e->attrs[i].length);
    }
    e->at = at_bytes(r, reached(r), 0);
    if (!place_tag(r, e))
        for (uint32_t i = 0; i < e->nattrs; i++) {
            e->attrs[i].name_at = e->attrs[i].at = e->at;
            e->attrs[i].exact = false;
        }
    link_element(r, e);
}

static void on_end(void *user, const xmlChar *name, const xmlChar *prefix, const xmlChar *uri)
{
    struct reader *r = ((xmlParserCtxtPtr)user)->_private;
    (void)name, (void)prefix, (void)uri;
    if (r->failed || !r->open)
        return;
    r->open->end = (uint32_t)reached(r);
    r->open = r->open->parent;
    r->depth--;
}

static void on_text(void *user, const xmlChar *text, int length)
{
    struct reader *r = ((xmlParserCtxtPtr)user)->_private;
    size_t n = length > 0 ? (size_t)length : 0, from = skip_blank(text_of(text), 0, n);
    if (r->failed || from == n || !r->open || r->open->text.length)
        return;
    size_t end = n;
    while (is_blank((char)text[end - 1]))
        end--;
    const xmlParserInput *in = r->ctxt->input;
    bool inside = in && text >= in->base && text < in->end;
    r->open->text = inside ? at_bytes(r, (size_t)in->consumed + (size_t)(text - in->base) + from, end - from)
                           : at_bytes(r, reached(r), 1);
    if (!r->open->text.length) /* at the very end of the file */
        r->open->text = r->open->at;
}

static void on_doctype(void *user, const xmlChar *name, const xmlChar *external, const xmlChar *system)
{
    struct reader *r = ((xmlParserCtxtPtr)user)->_private;
    (void)name, (void)external, (void)system;
    if (fail_first(r)) {
        diag_error(r->diag, at_bytes(r, back_to(r, '<').start, strlen("<!DOCTYPE")), "xml-doctype",
                   "a DOCTYPE is not accepted");
        diag_help(r->diag, "delete the line; entities and document types are never read");
    }
    stop(r);
}

/* libxml2's complaints that people meet, in our words; the others keep libxml2's. */
static void say_malformed(struct reader *r, const xmlError *error)
{
    struct span at = at_bytes(r, reached(r), 0);
    const char *open = r->open ? r->open->name : "";
    switch (error->code) {
    case XML_ERR_DOCUMENT_EMPTY:
        diag_error(r->diag, at, "xml-malformed", "this is not XML: no element starts here");
        return;
    case XML_ERR_DOCUMENT_END:
        diag_error(r->diag, at, "xml-malformed", "something follows the end of the document");
        return;
    case XML_ERR_TAG_NAME_MISMATCH:
        diag_error(r->diag, back_to(r, '<'), "xml-malformed", "this end tag does not close <%s>", open);
        diag_note(r->diag, r->open ? r->open->at : at, "<%s> is open", open);
        return;
    case XML_ERR_TAG_NOT_FINISHED:
        diag_error(r->diag, at, "xml-malformed", "the file ends inside <%s>", open);
        diag_note(r->diag, r->open ? r->open->at : at, "<%s> is open", open);
        return;
    case XML_ERR_ATTRIBUTE_NOT_STARTED:
        diag_error(r->diag, at, "xml-malformed", "an attribute's value must stand in quotes");
        return;
    case XML_ERR_ATTRIBUTE_WITHOUT_VALUE:
        diag_error(r->diag, at, "xml-malformed", "this attribute has no value");
        return;
    case XML_ERR_ATTRIBUTE_REDEFINED:
        diag_error(r->diag, at, "xml-malformed", "the attribute '%s' is given twice", error->str1 ? error->str1 : "");
        return;
    case XML_ERR_LT_IN_ATTRIBUTE:
        diag_error(r->diag, at, "xml-malformed", "'<' inside an attribute's value: is a closing quote missing?");
        if (at.start > 0) {
            size_t from = at.start - 1;
            while (from > 0 && r->source->text[from] != '<')
                from--;
            diag_note(r->diag, at_bytes(r, from, 1), "the tag that is still open");
        }
        return;
    case XML_ERR_SPACE_REQUIRED:
        diag_error(r->diag, at, "xml-malformed", "a blank is missing between two attributes");
        return;
    case XML_ERR_UNDECLARED_ENTITY:
    case XML_WAR_UNDECLARED_ENTITY:
        diag_error(r->diag, back_to(r, '&'), "xml-malformed", "the entity '&%s;' is unknown",
                   error->str1 ? error->str1 : "");
        return;
    default:
        diag_error(r->diag, at, "xml-malformed", "not well-formed XML: %.*s",
                   (int)strcspn(error->message ? error->message : "", "\n"), error->message ? error->message : "");
    }
}

static void on_error(void *user, xmlErrorPtr error)
{
    xmlParserCtxtPtr ctxt = user;
    struct reader *r = ctxt ? ctxt->_private : NULL;
    /* namespaces are refused in on_start, with a place */
    if (!r || error->level < XML_ERR_ERROR || error->domain == XML_FROM_NAMESPACE || error->code == XML_ERR_USER_STOP)
        return;
    if (fail_first(r))
        say_malformed(r, error);
}

static xmlParserInputPtr load_nothing(const char *url, const char *id, xmlParserCtxtPtr ctxt)
{
    (void)url, (void)id, (void)ctxt;
    return NULL;
}

static void ignore_error(void *user, xmlErrorPtr error)
{
    (void)user, (void)error;
}

/* UTF-8 without NUL: libxml2 would otherwise guess at UTF-16, EBCDIC and others and move all positions */
static bool check_utf8(struct diag *d, const struct source *s)
{
    const unsigned char *p = (const unsigned char *)s->text;
    for (size_t i = 0, step; i < s->size; i += step) {
        step = p[i] < 0x80 ? 1 : p[i] >> 5 == 6 ? 2 : p[i] >> 4 == 14 ? 3 : p[i] >> 3 == 30 ? 4 : 0;
        bool good = step && p[i] && i + step <= s->size;
        for (size_t k = 1; good && k < step; k++)
            good = p[i + k] >> 6 == 2;
        if (good)
            continue;
        diag_error(d, (struct span){s, (uint32_t)i, 1}, "xml-encoding", "this is not UTF-8 text (byte 0x%02x)", p[i]);
        return false;
    }
    return true;
}

/* The encoding that the XML declaration states, if any, must be UTF-8; the parser is told to ignore it. */
static bool check_declaration(struct diag *d, const struct source *s)
{
    const char *text = s->text, *end = text + s->size;
    size_t from = s->size >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0;
    if (s->size - from < 6 || memcmp(text + from, "<?xml", 5) != 0 || !is_blank(text[from + 5]))
        return true;
    const char *stop = memchr(text + from, '>', s->size - from);
    const char *word = memmem(text + from, (size_t)((stop ? stop : end) - text) - from, "encoding", 8);
    if (!word)
        return true;
    size_t i = skip_blank(text, (size_t)(word - text) + 8, s->size);
    i = i < s->size && text[i] == '=' ? skip_blank(text, i + 1, s->size) : s->size;
    if (i >= s->size || (text[i] != '"' && text[i] != '\''))
        return true; /* malformed: the parser will say so */
    size_t n = strcspn(text + i + 1, (char[]){text[i], '>', 0});
    if ((n == 5 && !strncasecmp(text + i + 1, "UTF-8", 5)) || (n == 8 && !strncasecmp(text + i + 1, "US-ASCII", 8)))
        return true;
    diag_error(d, (struct span){s, (uint32_t)i + 1, (uint32_t)n}, "xml-encoding", "this encoding is not accepted");
    diag_help(d, "save the file as UTF-8 and write encoding=\"UTF-8\"");
    return false;
}

/* where what starts with '<' and is no tag ends: a comment, CDATA or an instruction; i for a tag */
static size_t skip_aside(const struct source *s, size_t i)
{
    static const struct {
        const char *start, *end;
    } asides[] = {{"<!--", "-->"}, {"<![CDATA[", "]]>"}, {"<?", "?>"}, {"<!", ">"}};
    for (size_t k = 0; k < sizeof asides / sizeof *asides; k++) {
        size_t n = strlen(asides[k].start), m = strlen(asides[k].end);
        if (s->size - i < n || memcmp(s->text + i, asides[k].start, n) != 0)
            continue;
        const char *end = memmem(s->text + i + n, s->size - i - n, asides[k].end, m);
        return end ? (size_t)(end - s->text) + m : s->size;
    }
    return i;
}

/* No tag has more than XML_ATTRIBUTES_MAX values.  libxml2 compares each attribute with all before it, and
 * says how many there are only when it has them all: a few megabytes of them would take it hours. */
static bool check_tags(struct diag *d, const struct source *s)
{
    uint32_t values = 0;
    bool inside = false;
    size_t start = 0;
    for (size_t i = 0; i < s->size;) {
        char c = s->text[i];
        if (!inside && c == '<') {
            size_t end = skip_aside(s, i);
            inside = end == i;
            start = i;
            values = 0;
            i = inside ? i + 1 : end;
        } else if (inside && (c == '"' || c == '\'')) {
            const char *close = memchr(s->text + i + 1, c, s->size - i - 1);
            if (++values > XML_ATTRIBUTES_MAX) {
                diag_error(d, (struct span){s, (uint32_t)start, 1}, "xml-limit",
                           "an element has more than %u attributes", XML_ATTRIBUTES_MAX);
                return false;
            }
            i = close ? (size_t)(close - s->text) + 1 : s->size;
        } else {
            inside = inside && c != '>';
            i++;
        }
    }
    return true;
}

struct xml_element *xml_parse(struct arena *a, struct diag *d, const struct source *s)
{
    if (s->size > INT32_MAX) {
        diag_error(d, (struct span){s, 0, 0}, "xml-limit", "the file is too large");
        return NULL;
    }
    if (!check_utf8(d, s) || !check_declaration(d, s) || !check_tags(d, s))
        return NULL;
    xmlInitParser();
    xmlSetExternalEntityLoader(load_nothing);
    xmlCatalogSetDefaults(XML_CATA_ALLOW_NONE);
    xmlSetStructuredErrorFunc(NULL, ignore_error);
    struct reader r = {.arena = a, .diag = d, .source = s, .ctxt = xmlNewParserCtxt()};
    if (!r.ctxt)
        arena_exhausted(s->size);
    r.ctxt->_private = &r;
    *r.ctxt->sax = (xmlSAXHandler){
        .initialized = XML_SAX2_MAGIC,
        .internalSubset = on_doctype,
        .startElementNs = on_start,
        .endElementNs = on_end,
        .characters = on_text,
        .ignorableWhitespace = on_text,
        .cdataBlock = on_text,
        .serror = on_error,
    };
    xmlDocPtr doc = xmlCtxtReadMemory(r.ctxt, s->text, (int)s->size, NULL, NULL,
                                      XML_PARSE_NONET | XML_PARSE_BIG_LINES | XML_PARSE_IGNORE_ENC);
    xmlFreeDoc(doc);
    if (!r.ctxt->wellFormed && fail_first(&r))
        diag_error(d, at_bytes(&r, reached(&r), 0), "xml-malformed", "not well-formed XML");
    xmlFreeParserCtxt(r.ctxt);
    return r.failed ? NULL : r.root;
}
