/* The XML reader: places of every attribute, also behind what moves a parser's buffer; entities; limits; no
 * access to anything outside the text. */

#include "compiler/topology/topo_xml.h"

#include "compiler/support/strbuf.h"

#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>

static struct xml_element *parse(struct arena *a, struct diag *d, const char *text, size_t size)
{
    struct source *s = ARENA_NEW(a, struct source);
    *s = (struct source){.name = "x.xml", .text = text, .size = size};
    return xml_parse(a, d, s);
}

static bool is_at(struct span at, const char *text)
{
    return at.length == strlen(text) && !memcmp(at.source->text + at.start, text, at.length);
}

static void test_tree(void)
{
    struct arena *a = arena_new();
    const char *text = "\xef\xbb\xbf<?xml version='1.0' encoding='utf-8'?>\n<!-- <no> -->\n<r>\n <a x='1'\n  "
                       "y = \"zwei > 1\"/>"
                       "<?pi <b?>\n <b>text &amp; more<c/></b>\n</r>\n";
    struct xml_element *r = parse(a, diag_new(a), text, strlen(text));
    CU_ASSERT_PTR_NOT_NULL_FATAL(r);
    struct xml_element *x = r->child;
    CU_ASSERT(is_at(r->at, "r") && is_at(x->at, "a") && x->nattrs == 2);
    CU_ASSERT(is_at(x->attrs[0].name_at, "x") && is_at(x->attrs[0].at, "1"));
    CU_ASSERT(is_at(x->attrs[1].name_at, "y") && is_at(x->attrs[1].at, "zwei > 1") && x->attrs[1].exact);
    CU_ASSERT(is_at(x->next->text, "text") && is_at(x->next->child->at, "c"));
    CU_ASSERT(xml_attr(x, "y") == &x->attrs[1] && !xml_attr(x, "z"));
    CU_ASSERT(is_at(xml_value_span(&x->attrs[1], 5, 3), "> 1") &&
              is_at(xml_value_span(&x->attrs[1], 5, 99), "> 1"));
    arena_free(a);
}

/* a value that is not byte for byte in the source keeps the place of the whole */
static void test_entities(void)
{
    struct arena *a = arena_new();
    const char *text = "<r a='x&lt;y' b='p\nq' c='&#65;'/>";
    struct xml_element *r = parse(a, diag_new(a), text, strlen(text));
    CU_ASSERT_PTR_NOT_NULL_FATAL(r);
    CU_ASSERT_STRING_EQUAL(r->attrs[0].value, "x<y");
    CU_ASSERT(is_at(r->attrs[0].at, "x&lt;y") && !r->attrs[0].exact &&
              is_at(xml_value_span(&r->attrs[0], 2, 1), "x&lt;y"));
    CU_ASSERT_STRING_EQUAL(r->attrs[1].value, "p q");
    CU_ASSERT_STRING_EQUAL(r->attrs[2].value, "A");
    arena_free(a);
}

/* 100,000 attributes over several MB, with wide characters and comments in between: every one exactly placed
 */
static void test_places(void)
{
    enum { N = 100000 };
    struct strbuf b = {0};
    strbuf_text(&b, "<r>\n");
    for (int i = 0; i < N; i++)
        strbuf_printf(&b, "<e%s n=\"v%d\"/>%s", i % 3 ? "" : "  ", i, i % 7 ? "\n" : "<!-- \xe2\x82\xac -->");
    strbuf_text(&b, "</r>");
    struct arena *a = arena_new();
    struct xml_element *r = parse(a, diag_new(a), b.text, b.length);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r);
    int n = 0, wrong = 0;
    for (struct xml_element *e = r->child; e; e = e->next, n++) {
        char want[16];
        snprintf(want, sizeof want, "v%d", n);
        wrong += !e->attrs[0].exact || !is_at(e->attrs[0].at, want) || !is_at(e->attrs[0].name_at, "n");
    }
    CU_ASSERT(n == N && wrong == 0);
    arena_free(a);
    strbuf_free(&b);
}

/* the code of the first error, by the JSON form */
static const char *refused(struct arena *a, const char *text, size_t size)
{
    struct diag *d = diag_new(a);
    struct xml_element *r = parse(a, d, text, size);
    CU_ASSERT(!r == (diag_errors(d) > 0));
    if (r)
        return "accepted";
    char *json = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&json, &length);
    diag_print_json(d, out);
    fclose(out);
    const char *code = strstr(json, "\"code\"");
    code = code ? strchr(code + 6, '"') + 1 : json;
    const char *copy = arena_strndup(a, code, strcspn(code, "\""));
    free(json);
    return copy;
}

static void repeat(struct strbuf *b, const char *s, unsigned n)
{
    strbuf_clear(b);
    for (unsigned i = 0; i < n; i++)
        strbuf_text(b, s);
}

static void test_limits(void)
{
    struct arena *a = arena_new();
    struct strbuf open = {0}, close = {0}, all = {0};
    for (unsigned over = 0; over < 2; over++) {
        repeat(&open, "<a>", XML_DEPTH_MAX + over);
        repeat(&close, "</a>", XML_DEPTH_MAX + over);
        strbuf_clear(&all);
        strbuf_printf(&all, "%s%s", open.text, close.text);
        CU_ASSERT_STRING_EQUAL(refused(a, all.text, all.length), over ? "xml-limit" : "accepted");
        repeat(&open, "<a/>", XML_ELEMENTS_MAX - 1 + over);
        strbuf_clear(&all);
        strbuf_printf(&all, "<r>%s</r>", open.text);
        CU_ASSERT_STRING_EQUAL(refused(a, all.text, all.length), over ? "xml-limit" : "accepted");
        strbuf_clear(&all);
        strbuf_text(&all, "<r");
        for (unsigned i = 0; i < XML_ATTRIBUTES_MAX + over; i++)
            strbuf_printf(&all, " a%u=''", i);
        strbuf_text(&all, "/>");
        CU_ASSERT_STRING_EQUAL(refused(a, all.text, all.length), over ? "xml-limit" : "accepted");
    }
    /* libxml2 alone would take minutes for these; what only looks like attributes is none */
    strbuf_clear(&all);
    strbuf_text(&all, "<r");
    for (unsigned i = 0; i < 500000; i++)
        strbuf_printf(&all, " a%u=''", i);
    CU_ASSERT_STRING_EQUAL(refused(a, all.text, all.length), "xml-limit");
    repeat(&open, "a='' \"\" ", XML_ATTRIBUTES_MAX + 1);
    strbuf_clear(&all);
    strbuf_printf(&all, "<?p %s?><!-- <r %s --><r a='>' b=\"<\"></r>", open.text, open.text);
    CU_ASSERT_STRING_EQUAL(refused(a, all.text, all.length), "xml-malformed");
    strbuf_clear(&all);
    strbuf_printf(&all, "<?p %s?><!-- <r %s --><r a='>'><a/></r>", open.text, open.text);
    CU_ASSERT_STRING_EQUAL(refused(a, all.text, all.length), "accepted");
    strbuf_free(&open);
    strbuf_free(&close);
    strbuf_free(&all);
    arena_free(a);
}

static void test_hostile(void)
{
    static const char *const cases[][2] = {
        {"<!DOCTYPE r [<!ENTITY x SYSTEM 'file:///etc/hostname'>]><r a='&x;'>&x;</r>", "xml-doctype"},
        {"<!DOCTYPE r SYSTEM 'http://127.0.0.1/x.dtd'><r/>", "xml-doctype"},
        {"<!DOCTYPE r [<!ENTITY a 'aaaaaaaa'><!ENTITY b '&a;&a;&a;&a;'>]><r x='&b;'/>", "xml-doctype"},
        {"<r>&x;</r>", "xml-malformed"},
        {"<r xmlns:xi='http://www.w3.org/2001/XInclude'><xi:include href='/etc/hostname'/></r>",
         "xml-namespace"},
        {"<r xml:base='/etc/'/>", "xml-namespace"},
        {"<?xml version='1.0' encoding='UTF-16'?><r/>", "xml-encoding"},
        {"<?xml version='1.0' encoding='IBM037'?><r/>", "xml-encoding"},
        {"\x1f\x8b\x08\x00", "xml-encoding"},
        {"<r a='\xc3'/>", "xml-encoding"},
        {"<r a='\x01'/>", "xml-malformed"},
        {"<r>]]></r>", "xml-malformed"},
        {"<r a=''", "xml-malformed"},
        {"<r", "xml-malformed"},
        {"<", "xml-malformed"},
        {"", "xml-malformed"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena *a = arena_new();
        CU_ASSERT_STRING_EQUAL(refused(a, cases[i][0], strlen(cases[i][0])), cases[i][1]);
        arena_free(a);
    }
    struct arena *a = arena_new();
    CU_ASSERT_STRING_EQUAL(refused(a, "<r>\0</r>", 8), "xml-encoding");
    arena_free(a);
}

void suite_topo_xml(void);
void suite_topo_xml(void)
{
    CU_pSuite s = CU_add_suite("topo_xml", NULL, NULL);
    CU_add_test(s, "tree and places", test_tree);
    CU_add_test(s, "values that are not byte for byte in the file", test_entities);
    CU_add_test(s, "100,000 places", test_places);
    CU_add_test(s, "limits", test_limits);
    CU_add_test(s, "hostile documents", test_hostile);
}
