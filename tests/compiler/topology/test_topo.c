/* Resolved clusters: the shipped files, levels and bandwidths, domains, groups, spares, degraded nodes,
 * measurements, warnings, the printed view. */

#include "compiler/topology/topo.h"

#include "compiler/support/strbuf.h"
#include "compiler/support/vec.h"

#include <CUnit/CUnit.h>
#include <dirent.h>
#include <libxml/relaxng.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GB 1e9

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

/* a cluster from memory; its diagnostics go to *said */
static struct topo *parse(struct arena *a, const char *text, const char **said)
{
    struct source *s = ARENA_NEW(a, struct source);
    struct diag *d = diag_new(a);
    *s = (struct source){.name = "c.xml", .text = text, .size = strlen(text)};
    struct topo *t = topo_parse(a, d, s, NULL);
    char *out = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&out, &size);
    diag_print(d, f, false);
    fclose(f);
    if (said)
        *said = arena_strndup(a, out, size);
    else if (!t)
        printf("\n%s", out);
    free(out);
    return t;
}

#define HGX                                                                                                  \
    "<node-type id='hgx' gpus='8'><gpu model='H100-SXM'/><scale-up kind='nvswitch' bandwidth='450GB/s'/>"    \
    "<nic count='8' bandwidth='400Gb/s'/></node-type>"

static struct topo *fabric(struct arena *a, const char *rest)
{
    struct topo *t = parse(a, arena_printf(a, "<cluster version='1'>" HGX "%s</cluster>", rest), NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    return t;
}

/* ---- shipped files ---- */

static int is_xml(const struct dirent *e)
{
    const char *dot = strrchr(e->d_name, '.');
    return dot && !strcmp(dot, ".xml");
}

static void test_shipped(void)
{
    static const struct {
        const char *file;
        uint32_t nodes;
        uint64_t gpus, usable;
        double level_gb_s[4]; /* 0 = no such level */
    } want[] = {
        {"a100-1024", 128, 1024, 1024, {300, 25, 25, 0}},
        {"cpu8", 1, 8, 8, {2, 0, 0, 0}},
        {"dgx-a100-superpod", 140, 1120, 1120, {300, 25, 25, 0}},
        {"dgx-h100-superpod", 127, 1016, 1016, {450, 50, 50, 0}},
        {"gb200-nvl72", 144, 576, 576, {900, 50, 0, 0}},
        {"h100x8", 1, 8, 8, {450, 0, 0, 0}},
        {"h200x1", 1, 1, 1, {55, 0, 0, 0}},
        {"h800-2048", 256, 2048, 2048, {200, 50, 50, 0}},
        {"meta-24k-roce", 3072, 24576, 24064, {450, 50, 50, 50.0 / 7}},
        {"tpu-v5p", 1024, 4096, 4096, {200, 200, 0, 0}},
    };
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        struct arena *a = arena_new();
        struct diag *d = diag_new(a);
        struct topo *t = topo_read(a, d, arena_printf(a, "topologies/%s.xml", want[i].file));
        diag_print(d, stdout, false);
        CU_ASSERT_PTR_NOT_NULL_FATAL(t);
        CU_ASSERT_EQUAL(diag_warnings(d), 0);
        CU_ASSERT(t->nnodes == want[i].nodes && t->gpus == want[i].gpus && t->usable_gpus == want[i].usable);
        for (uint32_t k = 0; k <= t->ntiers; k++)
            CU_ASSERT(near(topo_level_bytes_s(t, 0, k), want[i].level_gb_s[k] * GB));
        arena_free(a);
    }
}

static void ignore_message(void *user, const char *format, ...)
{
    (void)user, (void)format;
}

static void check_schema(xmlRelaxNGPtr schema, const char *folder, int least)
{
    struct dirent **entries;
    int n = scandir(folder, &entries, is_xml, alphasort);
    CU_ASSERT(n >= least);
    for (int i = 0; i < n; i++) {
        struct arena *a = arena_new();
        const char *path = arena_printf(a, "%s/%s", folder, entries[i]->d_name);
        struct source *s = source_read(a, diag_new(a), path, (size_t)1 << 24);
        xmlDocPtr doc = xmlReadMemory(s->text, (int)s->size, path, NULL, XML_PARSE_NONET);
        xmlRelaxNGValidCtxtPtr valid = xmlRelaxNGNewValidCtxt(schema);
        if (xmlRelaxNGValidateDoc(valid, doc) != 0) {
            printf("\n    %s does not match the schema\n", path);
            CU_FAIL("schema");
        }
        xmlRelaxNGFreeValidCtxt(valid);
        xmlFreeDoc(doc);
        arena_free(a);
        free(entries[i]);
    }
    free(entries);
}

/* every shipped file against the schema, which is itself thereby tested; and machines of published runs */
static void test_schema(void)
{
    struct arena *kept = arena_new();
    struct source *rng = source_read(kept, diag_new(kept), "topologies/cluster.rng", (size_t)1 << 20);
    CU_ASSERT_PTR_NOT_NULL_FATAL(rng);
    xmlRelaxNGParserCtxtPtr parser = xmlRelaxNGNewMemParserCtxt(rng->text, (int)rng->size);
    xmlRelaxNGSetParserErrors(parser, ignore_message, ignore_message, NULL);
    xmlRelaxNGPtr schema = xmlRelaxNGParse(parser);
    CU_ASSERT_PTR_NOT_NULL_FATAL(schema);
    check_schema(schema, "topologies", 10);
    check_schema(schema, "tests/cases/known", 2);
    xmlRelaxNGFree(schema);
    xmlRelaxNGFreeParserCtxt(parser);
    arena_free(kept);
}

/* ---- levels ---- */

static void test_levels(void)
{
    struct arena *a = arena_new();
    struct topo *t = fabric(
        a, "<nodes type='hgx' count='3072'/><fabric medium='roce'><tier name='rack' span='2'/>"
           "<tier name='pod' span='384'/><tier name='cluster' span='all' oversubscription='7'/></fabric>");
    static const uint32_t want[][3] = {{0, 0, 0},     {0, 1, 1},    {1, 2, 2},      {0, 383, 2},
                                       {383, 384, 3}, {0, 3071, 3}, {3070, 3071, 1}};
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        CU_ASSERT_EQUAL(topo_level(t, want[i][0], want[i][1]), want[i][2]);
        CU_ASSERT_EQUAL(topo_level(t, want[i][1], want[i][0]), want[i][2]);
    }
    CU_ASSERT(near(topo_level_bytes_s(t, 0, 2), 50 * GB) && near(topo_level_bytes_s(t, 0, 3), 50 * GB / 7));
    CU_ASSERT_STRING_EQUAL(topo_level_name(t, 0), "scale-up");
    CU_ASSERT_STRING_EQUAL(topo_level_name(t, 3), "cluster");
    static const uint64_t nodes[][2] = {{1, 0}, {2, 1}, {3, 2}, {384, 2}, {385, 3}, {3072, 3}};
    for (size_t i = 0; i < ARRAY_LEN(nodes); i++)
        CU_ASSERT_EQUAL(topo_level_of_nodes(t, 0, nodes[i][0]), nodes[i][1]);
    CU_ASSERT_STRING_EQUAL(t->nodes[3071].name, "hgx-3072");
    CU_ASSERT_STRING_EQUAL(t->medium, "roce");
    arena_free(a);
}

/* tori that a tier joins: the torus is the first level and joins a node's GPUs too, the NICs carry the rest */
static void test_tori(void)
{
    struct arena *a = arena_new();
    struct diag *d = diag_new(a);
    struct topo *t = topo_read(a, d, "tests/cases/known/tpu-v4-pods.xml");
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    static const uint32_t want[][3] = {{5, 5, 0}, {0, 1, 1}, {0, 767, 1}, {767, 768, 2}, {768, 1535, 1}, {0, 1535, 2}};
    for (size_t i = 0; i < ARRAY_LEN(want); i++)
        CU_ASSERT_EQUAL(topo_level(t, want[i][0], want[i][1]), want[i][2]);
    CU_ASSERT(t->ntiers == 2 && t->tiers[0].ngroups == 2 && t->tiers[1].ngroups == 1);
    CU_ASSERT(near(topo_level_bytes_s(t, 0, 0), 100 * GB) && near(topo_level_bytes_s(t, 0, 1), 100 * GB));
    CU_ASSERT(near(topo_level_bytes_s(t, 0, 2), 12.5 * GB / 4));
    CU_ASSERT(near(topo_level_latency_s(t, 0, 1), 1.9e-6) && near(topo_level_latency_s(t, 0, 2), 4e-6));
    CU_ASSERT_STRING_EQUAL(topo_level_name(t, 1), "torus");
    CU_ASSERT_STRING_EQUAL(topo_level_name(t, 2), "datacentre");
    arena_free(a);
}

/* oversubscriptions multiply; spare uplinks further in (below 1) make up for later ones, but never beyond the
 * NICs */
static void test_oversubscription(void)
{
    struct arena *a = arena_new();
    struct topo *t =
        fabric(a, "<nodes type='hgx' count='64'/><fabric><tier name='a' span='4' oversubscription='0.5'/>"
                  "<tier name='b' span='16' oversubscription='3'/><tier name='c' span='all' "
                  "oversubscription='2'/></fabric>");
    CU_ASSERT(near(topo_level_bytes_s(t, 0, 1), 50 * GB));
    CU_ASSERT(near(topo_level_bytes_s(t, 0, 2), 50 * GB / 1.5));
    CU_ASSERT(near(topo_level_bytes_s(t, 0, 3), 50 * GB / 3));
    arena_free(a);
}

/* numbers at both ends of what they may be */
static void test_bounds(void)
{
    struct arena *a = arena_new();
    struct topo *t =
        fabric(a, "<nodes type='hgx' count='64'/><fabric><tier name='a' span='4' oversubscription='0.1'/>"
                  "<tier name='b' span='all' oversubscription='1000'/></fabric>"
                  "<degraded nodes='hgx-0001' compute='0.000001'/>");
    CU_ASSERT(t->tiers[0].oversubscription == 0.1 && t->tiers[1].oversubscription == 1000);
    t = fabric(a, "<nodes type='hgx' count='8'/><fabric rails='2' cross-rail='no'><tier name='a' span='all'/></fabric>");
    CU_ASSERT(t->rails == 2 && !t->cross_rail);
    t = fabric(a, "<nodes type='hgx' count='8'/><fabric rails='8'><tier name='a' span='all'/></fabric>");
    CU_ASSERT(t->rails == 8 && t->cross_rail);
    /* GPUs that nothing joins may have rails that meet */
    CU_ASSERT_PTR_NOT_NULL(parse(a,
                                 "<cluster version='1'><node-type id='x' gpus='2'><gpu model='H100-SXM'/><scale-up "
                                 "kind='none'/><nic count='2' bandwidth='100Gb/s'/></node-type><nodes type='x' count='4'/>"
                                 "<fabric rails='2'><tier name='a' span='all'/></fabric></cluster>",
                                 NULL));
    CU_ASSERT_PTR_NOT_NULL(parse(a,
                                 "<cluster version='1'><node-type id='x' gpus='2'><gpu model='H100-SXM'/><scale-up "
                                 "kind='mesh' bandwidth='100GB/s'/><nic count='2' bandwidth='100Gb/s'/></node-type><nodes "
                                 "type='x' count='4'/><fabric rails='2' cross-rail='no'><tier name='a' span='all'/></fabric>"
                                 "</cluster>",
                                 NULL));
    arena_free(a);
}

/* a GPU's name goes without its end where no other begins so */
static void test_short_names(void)
{
    struct arena *a = arena_new();
    static const char form[] = "<cluster version='1'><node-type id='x' gpus='8'><gpu model='%s'/></node-type>"
                               "<nodes type='x' count='1'/></cluster>";
    const char *said;
    struct topo *t = parse(a, arena_printf(a, form, "H800"), NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    CU_ASSERT_STRING_EQUAL(t->types[0].gpu.model, "H800-SXM");
    CU_ASSERT(near(topo_level_bytes_s(t, 0, 0), 200 * GB));
    for (int k = 0; k < 3; k++) { /* several begin so, or none with a '-' behind it */
        static const char *const names[] = {"H100", "A100-SXM-", "H80"};
        CU_ASSERT_PTR_NULL(parse(a, arena_printf(a, form, names[k]), &said));
        CU_ASSERT(strstr(said, k ? "is not in the catalogue" : "is the beginning of several GPUs' names") != NULL);
    }
    arena_free(a);
}

static void test_latencies(void)
{
    struct arena *a = arena_new();
    const char *text =
        "<cluster version='1'><node-type id='x' gpus='2'><gpu model='H100-SXM'/>"
        "<scale-up kind='mesh' bandwidth='100GB/s' latency='3us'/><nic count='2' bandwidth='100Gb/s' "
        "latency='5us'/>"
        "</node-type><nodes type='x' count='16'/><fabric><tier name='a' span='4' latency='500ns'/>"
        "<tier name='b' span='all' latency='1us'/></fabric></cluster>";
    struct topo *t = parse(a, text, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    CU_ASSERT(near(topo_level_latency_s(t, 0, 0), 3e-6));
    CU_ASSERT(near(topo_level_latency_s(t, 0, 1), 5.5e-6));
    CU_ASSERT(near(topo_level_latency_s(t, 0, 2), 6.5e-6));
    CU_ASSERT(t->types[0].scale_up.kind == SCALE_UP_MESH && t->types[0].scale_up.gpus == 2);
    t = fabric(a, "<nodes type='hgx' count='2'/><fabric><tier name='leaf' span='all'/></fabric>");
    CU_ASSERT(near(topo_level_latency_s(t, 0, 0), 1.9e-6) && near(topo_level_latency_s(t, 0, 1), 4e-6));
    arena_free(a);
}

/* level 0 without NVLink is host memory */
static void test_host(void)
{
    static const struct {
        const char *host;
        double gb_s;
    } cases[] = {{"host-bandwidth='2GB/s'", 2}, {"", 2.5}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arena *a = arena_new();
        struct topo *t = parse(
            a,
            arena_printf(a,
                         "<cluster version='1'><node-type id='m' gpus='4' %s><gpu model='cpu' memory='2GiB' "
                         "memory-bandwidth='5GB/s'><peak dtype='fp32' rate='20GFLOP/s'/></gpu>"
                         "<scale-up kind='none'/></node-type><nodes type='m' count='1'/></cluster>",
                         cases[i].host),
            NULL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(t);
        CU_ASSERT(near(topo_level_bytes_s(t, 0, 0), cases[i].gb_s * GB));
        CU_ASSERT(t->ntiers == 0 && t->types[0].scale_up.gpus == 1 && topo_level(t, 0, 0) == 0);
        CU_ASSERT(!t->types[0].gpu.known && t->types[0].gpu.reserve_bytes == 0);
        arena_free(a);
    }
}

/* a domain of several nodes, with a last one that is not full */
static void test_domains(void)
{
    struct arena *a = arena_new();
    struct topo *t = parse(a,
                           "<cluster version='1'><node-type id='tray' gpus='4'><gpu model='GB200'/>"
                           "<scale-up kind='nvswitch' bidirectional='1.8TB/s' span='18'/><nic count='4' "
                           "bandwidth='400Gb/s'/></node-type>"
                           "<nodes type='tray' names='rack[1-2]-tray[01-18],spare[1-3]'/><fabric><tier "
                           "name='su' span='all'/></fabric>"
                           "<spare count='2' per='scale-up'/></cluster>",
                           NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    CU_ASSERT(near(t->types[0].scale_up.bytes_s, 900 * GB) && t->types[0].scale_up.gpus == 72);
    CU_ASSERT(topo_ndomains(t) == 3 && topo_domain(t, 17) == 0 && topo_domain(t, 18) == 1 &&
              topo_domain(t, 36) == 2);
    CU_ASSERT(topo_level(t, 0, 17) == 0 && topo_level(t, 17, 18) == 1 && topo_level_of_nodes(t, 0, 18) == 0);
    CU_ASSERT_STRING_EQUAL(t->nodes[18].name, "rack2-tray01");
    static const uint32_t spare[] = {16, 17, 34, 35, 37, 38};
    for (size_t i = 0; i < ARRAY_LEN(spare); i++)
        CU_ASSERT_EQUAL(t->nodes[spare[i]].state, NODE_SPARE);
    CU_ASSERT_EQUAL(t->usable_gpus, 33 * 4);
    arena_free(a);
}

/* one domain needs neither NICs nor a fabric */
static void test_one_domain(void)
{
    struct arena *a = arena_new();
    struct topo *t = parse(
        a,
        "<cluster version='1'><node-type id='tray' gpus='4'><gpu model='GB200'/><scale-up kind='nvswitch' "
        "bandwidth='900GB/s' span='18'/></node-type><nodes type='tray' count='18'/></cluster>",
        NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    CU_ASSERT(t->ntiers == 0 && topo_level(t, 0, 17) == 0);
    arena_free(a);
}

/* ---- several types, groups ---- */

#define MIXED                                                                                                \
    "<cluster version='1'>" HGX                                                                              \
    "<node-type id='old' gpus='4'><gpu model='A100-SXM'/><nic count='2' bandwidth='200Gb/s'/>"               \
    "</node-type><nodes type='hgx' names='h[01-08]'/><nodes type='old' names='a[1-4]'/>"

static void test_mixed(void)
{
    struct arena *a = arena_new();
    struct topo *t = parse(a,
                           MIXED "<fabric><tier name='leaf' span='4'/><tier name='core' span='all'/>"
                                 "<group tier='leaf' name='row' nodes='h08,a[1-2]'/></fabric></cluster>",
                           NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    uint32_t *nodes;
    CU_ASSERT_EQUAL(topo_usable(a, t, UINT32_MAX, &nodes), 0); /* which type? */
    CU_ASSERT_EQUAL(topo_usable(a, t, 0, &nodes), 8);
    CU_ASSERT(topo_usable(a, t, 1, &nodes) == 4 && nodes[0] == 8 && nodes[3] == 11);
    /* h08 a1 a2 are one group; the rest is cut by fours: h01-h04, h05-h07 with a3, a4 */
    CU_ASSERT(topo_level(t, 7, 9) == 1 && topo_level(t, 6, 7) == 2 && topo_level(t, 6, 10) == 1 &&
              topo_level(t, 10, 11) == 2);
    CU_ASSERT(t->tiers[0].ngroups == 4 && topo_group(t, 0, 8) == 0 && topo_group(t, 0, 0) == 1);
    CU_ASSERT(near(topo_level_bytes_s(t, 1, 1), 12.5 * GB));
    /* without <scale-up> the catalogue's usual machine */
    CU_ASSERT(t->types[1].scale_up.kind == SCALE_UP_NVSWITCH && near(topo_level_bytes_s(t, 1, 0), 300 * GB));
    CU_ASSERT(t->nodes[8].ordinal == 0 && topo_domain(t, 8) == 8 && topo_ndomains(t) == 12);
    arena_free(a);
}

/* ---- states ---- */

static void test_states(void)
{
    struct arena *a = arena_new();
    struct topo *t = fabric(
        a, "<nodes type='hgx' names='g[01-16]'/><fabric><tier name='pod' span='8'/><tier name='all' "
           "span='all'/></fabric>"
           "<spare count='2' per='pod'/><exclude nodes='g[07,15]' reason='ECC'/><exclude gpus='g03:0,6-7'/>"
           "<degraded nodes='g04' nic-bandwidth='100Gb/s' compute='0.9'/><degraded gpus='g05:3' "
           "compute='0.5'/>");
    /* spares are taken from what is not excluded: g06 and g08, g14 and g16 */
    static const enum node_state want[16] = {[5] = NODE_SPARE,  [6] = NODE_EXCLUDED,  [7] = NODE_SPARE,
                                             [13] = NODE_SPARE, [14] = NODE_EXCLUDED, [15] = NODE_SPARE};
    for (uint32_t i = 0; i < 16; i++)
        CU_ASSERT_EQUAL(t->nodes[i].state, want[i]);
    CU_ASSERT_STRING_EQUAL(t->nodes[6].reason, "ECC");
    CU_ASSERT_EQUAL(t->nodes[2].excluded_gpus, 0xc1);
    CU_ASSERT(near(t->nodes[3].nic_factor, 0.25) && near(t->nodes[3].compute_factor, 0.9));
    CU_ASSERT(near(t->nodes[4].compute_factor, 0.5) && near(t->nodes[4].nic_factor, 1));
    uint32_t *nodes, n = topo_usable(a, t, UINT32_MAX, &nodes);
    CU_ASSERT(n == 9 && nodes[1] == 1 && nodes[2] == 3);
    CU_ASSERT(t->gpus == 128 && t->usable_gpus == 72);
    arena_free(a);
}

/* An id is a letter and at most 62 letters, digits, '-', '_' or '.': each character first and second. */
static bool is_id(const char *id)
{
    static const char form[] = "<cluster version='1'>" HGX "<nodes type='hgx' count='1'/>"
                               "<fabric><tier name='%s' span='all'/></fabric></cluster>";
    struct arena *a = arena_new();
    const char *said;
    bool taken = parse(a, arena_printf(a, form, id), &said) != NULL;
    arena_free(a);
    return taken;
}

static void test_ids(void)
{
    for (int c = ' '; c < 127; c++) {
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'), digit = c >= '0' && c <= '9';
        const char first[] = {(char)c, 0}, second[] = {'a', (char)c, 0};
        if (strchr("<&'", c))
            continue; /* XML's own */
        CU_ASSERT_EQUAL(is_id(first), letter);
        CU_ASSERT_EQUAL(is_id(second), letter || digit || strchr("-_.", c));
    }
    char longest[65];
    memset(longest, 'a', sizeof longest);
    longest[64] = 0;
    CU_ASSERT(!is_id("") && !is_id(longest) && is_id(longest + 1));
}

/* ---- measurements ---- */

static void test_measured(void)
{
    struct arena *a = arena_new();
    struct topo *t = fabric(
        a, "<nodes type='hgx' count='8'/><fabric><tier name='leaf' span='2'/><tier name='core' "
           "span='all'/></fabric>"
           "<measured date='2026-09-01'><collective op='all_reduce' ranks='8'><point size='256MiB' "
           "busbw='430GB/s'/>"
           "<point size='1MiB' time='48us'/></collective><collective op='all_gather' ranks='32'>"
           "<point size='1GB' busbw='40GB/s'/></collective><collective op='send_recv' ranks='2' per-node='1'>"
           "<point size='1GB' busbw='40GB/s'/></collective>"
           "<gemm dtype='bf16'><point m='1024' n='2048' k='4096' efficiency='0.5'/></gemm></measured>");
    CU_ASSERT_EQUAL_FATAL(t->nmeasured, 4);
    const struct topo_measured *m = t->measured;
    CU_ASSERT_STRING_EQUAL(m[0].tier, "scale-up");
    CU_ASSERT(m[0].npoints == 2 && m[0].points[0].bytes == 1048576 && near(m[0].points[0].seconds, 48e-6));
    CU_ASSERT(near(m[0].points[1].seconds, 268435456 * 1.75 / 430e9));
    CU_ASSERT_STRING_EQUAL(m[1].tier, "core");
    CU_ASSERT(m[1].per_node == 8 && near(m[1].points[0].seconds, 1e9 * 31 / 32 / 40e9));
    CU_ASSERT_STRING_EQUAL(m[2].tier, "leaf");
    CU_ASSERT(near(m[2].points[0].seconds, 0.025));
    CU_ASSERT_STRING_EQUAL(m[3].kind, "gemm");
    CU_ASSERT(near(m[3].points[0].flop_s, 0.5 * 989.4e12) &&
              near(m[3].points[0].seconds, 2.0 * 1024 * 2048 * 4096 / (0.5 * 989.4e12)));
    CU_ASSERT_STRING_EQUAL(m[3].date, "2026-09-01");
    arena_free(a);
}

/* Kernels and attention are measured on the type that is named; without a name on every type, which is the
 * only one where there is but one. */
static void test_measured_type(void)
{
    static const struct {
        bool two;
        const char *named, *type; /* type: NULL = every one */
    } cases[] = {{false, "", "hgx"},
                 {false, "type='hgx'", "hgx"},
                 {true, "", NULL},
                 {true, "type='hgx'", "hgx"},
                 {true, "type='old'", "old"}};
    static const char one[] = "<cluster version='1'>" HGX "<nodes type='hgx' count='1'/>",
                      two[] = MIXED "<fabric><tier name='leaf' span='all'/></fabric>",
                      form[] = "%s<measured><kernel op='SWIGLU' dtype='bf16' %s><point size='1MiB' "
                               "time='48us'/></kernel><attention dtype='bf16' %s><point sequence='128' "
                               "head='64' forward='1GFLOP/s' backward='1GFLOP/s'/></attention></measured></cluster>";
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arena *a = arena_new();
        const char *named = cases[i].named;
        struct topo *t = parse(a, arena_printf(a, form, cases[i].two ? two : one, named, named), NULL);
        CU_ASSERT_FATAL(t && t->nmeasured == 2);
        for (uint32_t k = 0; k < 2; k++)
            CU_ASSERT(cases[i].type ? t->measured[k].type && !strcmp(t->measured[k].type, cases[i].type)
                                    : !t->measured[k].type);
        arena_free(a);
    }
}

/* of a curve with too many points, the first of those is one error, wherever they come from */
static void test_many_points(void)
{
    for (int gemm = 0; gemm < 2; gemm++)
        for (unsigned over = 0; over < 3; over++) {
            struct arena *a = arena_new();
            struct strbuf text = {0};
            const char *said;
            strbuf_printf(&text, "<cluster version='1'>" HGX "<nodes type='hgx' count='1'/><measured>%s",
                          gemm ? "<gemm dtype='bf16'>" : "<collective op='all_reduce' ranks='8'>");
            for (unsigned k = 1; k <= 4096 + over; k++)
                strbuf_printf(&text, gemm ? "<point m='%u' n='8' k='8' efficiency='0.5'/>" : "<point size='%uKiB' time='48us'/>",
                              k);
            strbuf_printf(&text, "%s</measured></cluster>", gemm ? "</gemm>" : "</collective>");
            CU_ASSERT_EQUAL(parse(a, text.text, &said) != NULL, !over);
            const char *first = strstr(said, "error: ");
            CU_ASSERT_EQUAL(first != NULL, over > 0);
            CU_ASSERT(!first || (strstr(first, "more than 4096 points in one curve") && !strstr(first + 1, "error: ")));
            strbuf_free(&text);
            arena_free(a);
        }
}

/* tables as nccl-tests prints them: with and without root, with N/A, headings, averages and what is no size in between */
static void test_tables(void)
{
    struct arena *a = arena_new();
    struct diag *d = diag_new(a);
    struct topo *t = topo_read(a, d, "tests/cases/topology/measured-tables.xml");
    diag_print(d, stdout, false);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    CU_ASSERT_EQUAL_FATAL(t->nmeasured, 2);
    CU_ASSERT(t->measured[0].npoints == 3 && t->measured[0].points[2].bytes == 1073741824);
    CU_ASSERT(near(t->measured[0].points[2].seconds, 5100.0e-6) &&
              near(t->measured[0].points[0].seconds, 45.5e-6));
    CU_ASSERT(t->measured[1].npoints == 2 && near(t->measured[1].points[1].seconds, 2600.0e-6));
    /* the text that a plan keeps needs no other file and means the same */
    CU_ASSERT(strlen(t->text) == t->text_size && !strstr(t->text, "href"));
    struct topo *again = parse(a, t->text, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(again);
    CU_ASSERT_EQUAL_FATAL(again->nmeasured, 2);
    for (uint32_t i = 0; i < 2; i++) {
        const struct topo_measured *m = &t->measured[i], *n = &again->measured[i];
        CU_ASSERT(m->npoints == n->npoints && m->ranks == n->ranks && !strcmp(m->tier, n->tier));
        CU_ASSERT(!memcmp(m->points, n->points, m->npoints * sizeof *m->points));
    }
    const struct topo_detail *detail = again->types[0].detail;
    CU_ASSERT(detail && detail->ngpus == 8 && detail->nnics == 0);
    CU_ASSERT_PTR_EQUAL(again->text, again->source->text);
    arena_free(a);
}

/* ---- warnings ---- */

static void test_warnings(void)
{
    static const struct {
        const char *gpu, *scale_up, *span, *says; /* says: a part of the diagnostics; "" = silence */
    } cases[] = {
        {"", "bandwidth='450GB/s'", "4", ""},
        {"", "bandwidth='900GB/s'", "4", "this is the figure for both directions of H100-SXM together"},
        {"", "bidirectional='900GB/s'", "4", ""},
        {"<peak dtype='bf16' rate='1979TFLOP/s'/>", "bandwidth='450GB/s'", "4",
         "is this the figure with sparsity?"},
        {"<peak dtype='bf16' rate='989TFLOP/s'/>", "bandwidth='450GB/s'", "4", ""},
        {"", "bandwidth='450GB/s' span='2'", "3", "tier 'a' cuts through scale-up domains of 2 nodes"},
        {"", "bandwidth='450GB/s' gpus='2'", "4", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arena *a = arena_new();
        const char *said;
        struct topo *t = parse(
            a,
            arena_printf(
                a,
                "<cluster version='1'><node-type id='x' gpus='8'><gpu model='H100-SXM'>%s</gpu><scale-up "
                "kind='nvswitch' %s/><nic count='8' bandwidth='400Gb/s'/></node-type><nodes type='x' "
                "count='12'/><fabric><tier name='a' span='%s'/><tier name='b' "
                "span='all'/></fabric></cluster>",
                cases[i].gpu, cases[i].scale_up, cases[i].span),
            &said);
        CU_ASSERT_PTR_NOT_NULL(t);
        CU_ASSERT(*cases[i].says ? strstr(said, cases[i].says) != NULL : !*said);
        arena_free(a);
    }
}

/* ---- the printed view ---- */

static char *printed(void (*print)(const struct topo *, FILE *), const struct topo *t)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    print(t, f);
    fclose(f);
    return text;
}

static void test_print(void)
{
    struct arena *a = arena_new();
    struct topo *t = fabric(
        a, "<nodes type='hgx' names='g[01-10]'/><fabric medium='roce' rails='8'><tier name='pod' span='4'/>"
           "<tier name='core' span='all' oversubscription='2'/></fabric><exclude nodes='g02' reason='ECC'/>");
    char *text = printed(topo_print, t), *json = printed(topo_print_json, t);
    static const char *const lines[] = {
        "cluster cluster: 10 nodes, 80 GPUs, 72 usable\n",
        "  scale-up    nvswitch, 450GB/s one way per GPU (file), 8 GPUs per domain, multicast\n",
        "  memory      79.6GiB (catalogue), of which 2GiB reserved (catalogue)\n",
        "  nic         8 x 50GB/s\n",
        "network roce, 8 rails\n",
        "      0  scale-up             1       10        -           450     1.9us\n",
        "      1  pod                  4        3        1            50       4us  last group: 2 nodes\n",
        "      2  core                10        1        2            25       4us\n",
        "excluded 1 node: g02 (ECC)\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        CU_ASSERT_PTR_NOT_NULL(strstr(text, lines[i]));
    CU_ASSERT_PTR_NOT_NULL(strstr(
        json, "{\"schema\": 1, \"name\": \"cluster\", \"nodes\": 10, \"gpus\": 80, \"usable_gpus\": 72, "));
    CU_ASSERT_PTR_NOT_NULL(
        strstr(json, "\"name\": \"core\", \"groups\": 1, \"span_nodes\": 10, \"oversubscription\": 2, "
                     "\"bytes_s_per_gpu\": {\"hgx\": 2.5e+10}"));
    CU_ASSERT_PTR_NOT_NULL(
        strstr(json, "{\"name\": \"g02\", \"state\": \"excluded\", \"excluded_gpus\": [], "));
    free(text);
    free(json);
    arena_free(a);
}

void suite_topo(void);
void suite_topo(void)
{
    CU_pSuite s = CU_add_suite("topo", NULL, NULL);
    CU_add_test(s, "shipped clusters", test_shipped);
    CU_add_test(s, "schema", test_schema);
    CU_add_test(s, "levels", test_levels);
    CU_add_test(s, "short names of GPUs", test_short_names);
    CU_add_test(s, "tori that a tier joins", test_tori);
    CU_add_test(s, "oversubscription", test_oversubscription);
    CU_add_test(s, "numbers at their bounds", test_bounds);
    CU_add_test(s, "latencies", test_latencies);
    CU_add_test(s, "host memory as level 0", test_host);
    CU_add_test(s, "scale-up domains", test_domains);
    CU_add_test(s, "a single domain", test_one_domain);
    CU_add_test(s, "several types and a group", test_mixed);
    CU_add_test(s, "excluded, spare, degraded", test_states);
    CU_add_test(s, "ids", test_ids);
    CU_add_test(s, "measurements", test_measured);
    CU_add_test(s, "measurements of one type of node", test_measured_type);
    CU_add_test(s, "curves of too many points", test_many_points);
    CU_add_test(s, "nccl-tests tables", test_tables);
    CU_add_test(s, "warnings", test_warnings);
    CU_add_test(s, "printed view", test_print);
}
