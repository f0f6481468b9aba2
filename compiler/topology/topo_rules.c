/* The vocabulary of cluster.xml, and the check of a tree against it.
 *
 * One table lists every element with its parent, how often it may occur, and its attributes with kind,
 * example and whether they are required.  The check walks the tree once; candidates for "did you mean" come
 * from the same table. <system> is a pasted NCCL dump: its inside is left to the reader of dumps. */

#include "compiler/topology/topo_rules.h"

#include "compiler/support/units.h"
#include "compiler/support/vec.h"

#include <inttypes.h>
#include <string.h>

const char *const topo_scale_up_words[4] = {"none", "nvswitch", "mesh", "pcie"};
const char *const topo_dtype_words[6] = {"fp32", "tf32", "bf16", "fp16", "fp8", "fp4"};
static const char *const yesno_words[] = {"no", "yes"};
static const char *const version_words[] = {"1"};
static const char *const medium_words[] = {"infiniband", "roce", "efa", "ethernet", "slingshot", "ici"};
static const char *const op_words[] = {"all_reduce", "all_gather", "reduce_scatter",
                                       "all_to_all", "send_recv",  "broadcast"};
static const char *const dump_words[] = {"nccl", "hwloc"};
static const char *const table_words[] = {"nccl-tests"};

#define ATTRS_MAX 16      /* attributes of one element */
#define ERRORS_ENOUGH 100 /* more are not printed anyway */

enum value_kind {
    VALUE_ID,
    VALUE_COUNT,
    VALUE_GPUS,
    VALUE_BYTES,
    VALUE_BYTES_S,
    VALUE_FLOP_S,
    VALUE_SECONDS,
    VALUE_FRACTION, /* above 0, at most 1 */
    VALUE_RATIO,    /* 0.1 to 1000 */
    VALUE_SPAN,     /* a count or `all` */
    VALUE_WORD,
    VALUE_TEXT,
    VALUE_DATE,
};

struct attr_rule {
    const char *name;
    enum value_kind kind;
    bool required;
    const char *example;      /* NULL: the first word */
    const char *const *words; /* VALUE_WORD */
    size_t nwords;
};

#define WORDS(w) (w), ARRAY_LEN(w)
#define NEED(name, kind, example)                                                                                      \
    {                                                                                                                  \
        name, kind, true, example, NULL, 0                                                                             \
    }
#define MAY(name, kind, example)                                                                                       \
    {                                                                                                                  \
        name, kind, false, example, NULL, 0                                                                            \
    }
#define NEED_WORD(name, words)                                                                                         \
    {                                                                                                                  \
        name, VALUE_WORD, true, NULL, WORDS(words)                                                                     \
    }
#define MAY_WORD(name, words)                                                                                          \
    {                                                                                                                  \
        name, VALUE_WORD, false, NULL, WORDS(words)                                                                    \
    }

static const struct attr_rule cluster_attrs[] = {NEED_WORD("version", version_words),
                                                 MAY("name", VALUE_TEXT, "my-cluster")};
static const struct attr_rule node_type_attrs[] = {
    NEED("id", VALUE_ID, "dgx"), NEED("gpus", VALUE_GPUS, "8"), MAY("cores", VALUE_COUNT, "64"),
    MAY("host-memory", VALUE_BYTES, "2TiB"), MAY("host-bandwidth", VALUE_BYTES_S, "25GB/s")};
static const struct attr_rule gpu_attrs[] = {NEED("model", VALUE_TEXT, "H100-SXM"), MAY("memory", VALUE_BYTES, "80GiB"),
                                             MAY("reserve", VALUE_BYTES, "2GiB"),
                                             MAY("memory-bandwidth", VALUE_BYTES_S, "3.35TB/s")};
static const struct attr_rule peak_attrs[] = {NEED_WORD("dtype", topo_dtype_words),
                                              NEED("rate", VALUE_FLOP_S, "989TFLOP/s"),
                                              MAY("efficiency", VALUE_FRACTION, "0.8")};
static const struct attr_rule scale_up_attrs[] = {{"kind", VALUE_WORD, true, "nvswitch", WORDS(topo_scale_up_words)},
                                                  MAY("bandwidth", VALUE_BYTES_S, "450GB/s"),
                                                  MAY("bidirectional", VALUE_BYTES_S, "900GB/s"),
                                                  MAY("latency", VALUE_SECONDS, "2us"),
                                                  MAY("span", VALUE_COUNT, "18"),
                                                  MAY("gpus", VALUE_COUNT, "2"),
                                                  MAY_WORD("multicast", yesno_words)};
static const struct attr_rule nic_attrs[] = {NEED("count", VALUE_COUNT, "8"),
                                             NEED("bandwidth", VALUE_BYTES_S, "400Gb/s"),
                                             MAY("latency", VALUE_SECONDS, "4us"), MAY_WORD("gdr", yesno_words)};
static const struct attr_rule topology_attrs[] = {NEED_WORD("format", dump_words),
                                                  NEED("href", VALUE_TEXT, "node.xml")};
static const struct attr_rule nodes_attrs[] = {NEED("type", VALUE_ID, "dgx"), MAY("count", VALUE_COUNT, "16"),
                                               MAY("names", VALUE_TEXT, "gpu[001-016]")};
static const struct attr_rule fabric_attrs[] = {MAY_WORD("medium", medium_words), MAY("rails", VALUE_COUNT, "8"),
                                                MAY_WORD("cross-rail", yesno_words)};
static const struct attr_rule tier_attrs[] = {NEED("name", VALUE_ID, "leaf"), NEED("span", VALUE_SPAN, "all"),
                                              MAY("oversubscription", VALUE_RATIO, "2"),
                                              MAY("latency", VALUE_SECONDS, "1us")};
static const struct attr_rule group_attrs[] = {NEED("tier", VALUE_ID, "leaf"), NEED("name", VALUE_ID, "row1"),
                                               NEED("nodes", VALUE_TEXT, "gpu[001-016]")};
static const struct attr_rule torus_attrs[] = {NEED("dims", VALUE_TEXT, "16x16x16"),
                                               NEED("link", VALUE_BYTES_S, "100GB/s"),
                                               MAY("latency", VALUE_SECONDS, "1us"), MAY_WORD("wrap", yesno_words)};
static const struct attr_rule exclude_attrs[] = {
    MAY("nodes", VALUE_TEXT, "gpu007"), MAY("gpus", VALUE_TEXT, "gpu007:0,3"), MAY("reason", VALUE_TEXT, "ECC")};
static const struct attr_rule spare_attrs[] = {MAY("nodes", VALUE_TEXT, "gpu[015-016]"), MAY("count", VALUE_COUNT, "2"),
                                               MAY("per", VALUE_ID, "pod"), MAY("reason", VALUE_TEXT, "hot spare")};
static const struct attr_rule degraded_attrs[] = {
    MAY("nodes", VALUE_TEXT, "gpu007"), MAY("gpus", VALUE_TEXT, "gpu007:0,3"),
    MAY("nic-bandwidth", VALUE_BYTES_S, "200Gb/s"), MAY("compute", VALUE_FRACTION, "0.9"),
    MAY("reason", VALUE_TEXT, "slow link")};
static const struct attr_rule measured_attrs[] = {MAY("date", VALUE_DATE, "2026-01-31")};
static const struct attr_rule collective_attrs[] = {
    NEED_WORD("op", op_words),           NEED("ranks", VALUE_COUNT, "8"), MAY("per-node", VALUE_COUNT, "8"),
    MAY("tier", VALUE_ID, "leaf"),       MAY("type", VALUE_ID, "dgx"),    MAY_WORD("format", table_words),
    MAY("href", VALUE_TEXT, "table.txt")};
static const struct attr_rule collective_point_attrs[] = {
    NEED("size", VALUE_BYTES, "1MiB"), MAY("busbw", VALUE_BYTES_S, "360GB/s"), MAY("time", VALUE_SECONDS, "48us")};
static const struct attr_rule gemm_attrs[] = {NEED_WORD("dtype", topo_dtype_words), MAY("type", VALUE_ID, "dgx")};
static const struct attr_rule gemm_point_attrs[] = {
    NEED("m", VALUE_COUNT, "8192"), NEED("n", VALUE_COUNT, "8192"), NEED("k", VALUE_COUNT, "8192"),
    MAY("rate", VALUE_FLOP_S, "700TFLOP/s"), MAY("efficiency", VALUE_FRACTION, "0.7")};
static const struct attr_rule kernel_attrs[] = {NEED("op", VALUE_TEXT, "RMSNORM"), NEED_WORD("dtype", topo_dtype_words),
                                                MAY("type", VALUE_ID, "dgx")};
static const struct attr_rule kernel_point_attrs[] = {NEED("size", VALUE_BYTES, "1MiB"),
                                                      NEED("time", VALUE_SECONDS, "90us")};
static const struct attr_rule attention_point_attrs[] = {
    NEED("sequence", VALUE_COUNT, "4096"), NEED("head", VALUE_COUNT, "128"), NEED("forward", VALUE_FLOP_S, "30GFLOP/s"),
    NEED("backward", VALUE_FLOP_S, "40GFLOP/s")};

enum occurs { ONCE, AT_MOST_ONCE, ONCE_OR_MORE, ANY };

static const struct element_rule {
    const char *name, *parent; /* parent "" = the document */
    enum occurs occurs;
    const struct attr_rule *attrs;
    size_t nattrs;
    const char *example;
} elements[] = {
    {"cluster", "", ONCE, WORDS(cluster_attrs), ""},
    {"node-type", "cluster", ONCE_OR_MORE, WORDS(node_type_attrs),
     "<node-type id=\"dgx\" gpus=\"8\"><gpu model=\"H100-SXM\"/></node-type>"},
    {"gpu", "node-type", ONCE, WORDS(gpu_attrs), "<gpu model=\"H100-SXM\"/>"},
    {"peak", "gpu", ANY, WORDS(peak_attrs), ""},
    {"scale-up", "node-type", AT_MOST_ONCE, WORDS(scale_up_attrs), ""},
    {"nic", "node-type", ANY, WORDS(nic_attrs), ""},
    {"topology", "node-type", AT_MOST_ONCE, WORDS(topology_attrs), ""},
    {"system", "node-type", AT_MOST_ONCE, NULL, 0, ""},
    {"nodes", "cluster", ONCE_OR_MORE, WORDS(nodes_attrs), "<nodes type=\"dgx\" count=\"16\"/>"},
    {"fabric", "cluster", AT_MOST_ONCE, WORDS(fabric_attrs), ""},
    {"tier", "fabric", ANY, WORDS(tier_attrs), ""},
    {"group", "fabric", ANY, WORDS(group_attrs), ""},
    {"torus", "fabric", AT_MOST_ONCE, WORDS(torus_attrs), ""},
    {"exclude", "cluster", ANY, WORDS(exclude_attrs), ""},
    {"spare", "cluster", ANY, WORDS(spare_attrs), ""},
    {"degraded", "cluster", ANY, WORDS(degraded_attrs), ""},
    {"measured", "cluster", ANY, WORDS(measured_attrs), ""},
    {"collective", "measured", ANY, WORDS(collective_attrs), ""},
    {"point", "collective", ANY, WORDS(collective_point_attrs), ""},
    {"gemm", "measured", ANY, WORDS(gemm_attrs), ""},
    {"point", "gemm", ONCE_OR_MORE, WORDS(gemm_point_attrs),
     "<point m=\"8192\" n=\"8192\" k=\"8192\" efficiency=\"0.7\"/>"},
    {"attention", "measured", ANY, WORDS(gemm_attrs), ""},
    {"point", "attention", ONCE_OR_MORE, WORDS(attention_point_attrs),
     "<point sequence=\"4096\" head=\"128\" forward=\"30GFLOP/s\" backward=\"40GFLOP/s\"/>"},
    {"kernel", "measured", ANY, WORDS(kernel_attrs), ""},
    {"point", "kernel", ONCE_OR_MORE, WORDS(kernel_point_attrs), "<point size=\"1MiB\" time=\"90us\"/>"},
};

static const struct element_rule *find_rule(const char *name, const char *parent)
{
    for (size_t i = 0; i < ARRAY_LEN(elements); i++)
        if (!strcmp(elements[i].name, name) && (!parent || !strcmp(elements[i].parent, parent)))
            return &elements[i];
    return NULL;
}

/* ---- one value ---- */

static bool is_id(const char *s, size_t n)
{
    if (!n || n > 63)
        return false;
    for (size_t i = 0; i < n; i++) {
        bool letter = (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z');
        bool other = (s[i] >= '0' && s[i] <= '9') || s[i] == '_' || s[i] == '.' || s[i] == '-';
        if (!letter && !(i && other))
            return false;
    }
    return true;
}

static bool is_date(const char *s, size_t n)
{
    if (n != 10)
        return false;
    for (size_t i = 0; i < n; i++)
        if (i == 4 || i == 7 ? s[i] != '-' : s[i] < '0' || s[i] > '9')
            return false;
    int month = (s[5] - '0') * 10 + (s[6] - '0'), day = (s[8] - '0') * 10 + (s[9] - '0');
    return month >= 1 && month <= 12 && day >= 1 && day <= 31;
}

static void check_word(struct arena *a, struct diag *d, const struct attr_rule *rule, struct xml_attr *v)
{
    const char *all = "";
    for (size_t i = 0; i < rule->nwords; i++) {
        if (!strcmp(rule->words[i], v->value)) {
            v->integer = i;
            v->valid = true;
            return;
        }
        all = arena_printf(a, "%s%s%s", all, i ? ", " : "", rule->words[i]);
    }
    if (rule->nwords == 1) {
        diag_error(d, v->at, "bad-value", "%s must be \"%s\", not \"%.64s\"", v->name, all, v->value);
        return;
    }
    const char *near = diag_nearest(v->value, rule->words, rule->nwords);
    diag_error(d, v->at, "unknown-word", "unknown %s '%.64s'", v->name, v->value);
    if (near)
        diag_caret(d, "did you mean '%s'?", near);
    diag_help(d, "%s is one of %s", v->name, all);
}

static void refuse(struct diag *d, const struct xml_attr *v, const struct units_error *e)
{
    diag_error(d, v->at, "bad-value", "%s: %s", v->name, e->message);
    if (*e->hint)
        diag_caret(d, "%s", e->hint);
}

static void check_count(struct diag *d, struct xml_attr *v, uint64_t max)
{
    struct units_error e;
    if (!units_count(v->value, v->length, &v->integer, &e))
        refuse(d, v, &e);
    else if (v->integer < 1 || v->integer > max)
        diag_error(d, v->at, "bad-value", "%s must be 1 to %" PRIu64 ", not %.32s", v->name, max, v->value);
    else
        v->valid = true;
}

/* a ratio written a:b, which people are used to */
static bool check_colon(struct diag *d, const struct xml_attr *v)
{
    const char *colon = memchr(v->value, ':', v->length);
    double over = 0, under = 0;
    struct units_error e;
    if (!colon || !units_real(v->value, (size_t)(colon - v->value), &over, &e) ||
        !units_real(colon + 1, v->length - (size_t)(colon - v->value) - 1, &under, &e) || under <= 0)
        return false;
    diag_error(d, v->at, "bad-value", "%s is one number, not a ratio '%.32s'", v->name, v->value);
    diag_caret(d, "write %s", units_show_real(over / under).s);
    return true;
}

static void check_real(struct diag *d, const struct attr_rule *rule, struct xml_attr *v)
{
    bool ratio = rule->kind == VALUE_RATIO;
    double low = ratio ? 0.1 : 0, high = ratio ? 1000 : 1;
    struct units_error e;
    if (ratio && check_colon(d, v))
        return;
    if (!units_real(v->value, v->length, &v->real, &e)) {
        if (v->length && v->value[v->length - 1] == '%')
            snprintf(e.hint, sizeof e.hint, "write a fraction, such as %s", rule->example);
        refuse(d, v, &e);
    } else if (v->real < low || v->real > high || v->real <= 0) {
        diag_error(d, v->at, "bad-value", "%s must be %s, not %.32s", v->name,
                   ratio ? "0.1 to 1000" : "above 0 and at most 1", v->value);
    } else if (v->real < 1e-6) {
        diag_error(d, v->at, "bad-value", "%s=\"%.32s\" is out of all proportion", v->name, v->value);
    } else {
        v->valid = true;
    }
}

/* a quantity with a unit; only a time may be 0 */
static void check_quantity(struct diag *d, const struct attr_rule *rule, struct xml_attr *v)
{
    struct units_error e;
    bool good = false;
    if (rule->kind == VALUE_BYTES)
        good = units_bytes(v->value, v->length, &v->integer, &e);
    else if (rule->kind == VALUE_BYTES_S)
        good = units_bytes_s(v->value, v->length, &v->real, &e);
    else if (rule->kind == VALUE_FLOP_S)
        good = units_flop_s(v->value, v->length, &v->real, &e);
    else
        good = units_seconds(v->value, v->length, &v->real, &e);
    if (rule->kind == VALUE_BYTES && good)
        v->real = (double)v->integer;
    if (!good)
        refuse(d, v, &e);
    else if (v->real <= 0 && rule->kind != VALUE_SECONDS && strcmp(v->name, "reserve") != 0)
        diag_error(d, v->at, "bad-value", "%s must not be zero", v->name);
    else if (v->real > 1e21 || (v->real < 1 && (rule->kind == VALUE_BYTES_S || rule->kind == VALUE_FLOP_S)))
        diag_error(d, v->at, "bad-value", "%s=\"%.32s\" is out of all proportion", v->name, v->value);
    else
        v->valid = true;
}

static void check_value(struct arena *a, struct diag *d, const struct attr_rule *rule, struct xml_attr *v)
{
    switch (rule->kind) {
    case VALUE_ID:
        v->valid = is_id(v->value, v->length);
        if (!v->valid)
            diag_error(d, v->at, "bad-value", "%s must be a letter, then at most 62 letters, digits, '-', '_' or '.'",
                       v->name);
        return;
    case VALUE_COUNT:
        check_count(d, v, TOPO_NODES_MAX);
        return;
    case VALUE_GPUS:
        check_count(d, v, TOPO_NODE_GPUS_MAX);
        return;
    case VALUE_BYTES:
    case VALUE_BYTES_S:
    case VALUE_FLOP_S:
    case VALUE_SECONDS:
        check_quantity(d, rule, v);
        return;
    case VALUE_FRACTION:
    case VALUE_RATIO:
        check_real(d, rule, v);
        return;
    case VALUE_SPAN:
        v->integer = UINT64_MAX;
        v->valid = !strcmp(v->value, "all");
        if (v->valid)
            return;
        check_count(d, v, TOPO_NODES_MAX);
        if (!v->valid)
            diag_caret(d, "a number of nodes, or all");
        return;
    case VALUE_WORD:
        check_word(a, d, rule, v);
        return;
    case VALUE_TEXT:
        v->valid = v->length > 0;
        if (!v->valid)
            diag_error(d, v->name_at, "bad-value", "%s is empty", v->name);
        for (size_t i = 0; v->valid && i < v->length; i++) {
            v->valid = (unsigned char)v->value[i] >= ' ' && v->value[i] != 0x7f;
            if (!v->valid)
                diag_error(d, v->at, "bad-value", "%s has a control character in it", v->name);
        }
        return;
    case VALUE_DATE:
        v->valid = is_date(v->value, v->length);
        if (!v->valid)
            diag_error(d, v->at, "bad-value", "%s must be written like %s", v->name, rule->example);
        return;
    }
}

/* ---- one element ---- */

static const struct attr_rule *find_attr(const struct element_rule *rule, const char *name)
{
    for (size_t k = 0; k < rule->nattrs; k++)
        if (!strcmp(rule->attrs[k].name, name))
            return &rule->attrs[k];
    return NULL;
}

/* what an unknown attribute was probably meant to be called, or NULL */
static const char *meant_attr(const struct element_rule *rule, const struct xml_attr *v)
{
    const char *names[ATTRS_MAX];
    size_t n = rule->nattrs < ATTRS_MAX ? rule->nattrs : ATTRS_MAX;
    for (size_t i = 0; i < n; i++)
        names[i] = rule->attrs[i].name;
    return diag_nearest(v->name, names, n);
}

static void unknown_attribute(struct diag *d, const struct xml_element *e, const struct element_rule *rule,
                              const struct xml_attr *v)
{
    const char *near = meant_attr(rule, v);
    diag_error(d, v->name_at, "unknown-attribute", "unknown attribute '%.64s' of <%s>", v->name, e->name);
    if (near)
        diag_caret(d, "did you mean '%s'?", near);
    if (!strcmp(e->name, "nic") && !strcmp(v->value, "storage"))
        diag_help(d, "leave out NICs for storage; list only those that training uses");
}

/* A required attribute that is there under a misspelt name is not reported as missing too. */
static void check_missing(struct diag *d, const struct xml_element *e, const struct element_rule *rule,
                          const struct attr_rule *want)
{
    for (uint32_t i = 0; i < e->nattrs; i++) {
        const char *name = e->attrs[i].name;
        if (!find_attr(rule, name) && meant_attr(rule, &e->attrs[i]))
            name = meant_attr(rule, &e->attrs[i]);
        if (!strcmp(name, want->name))
            return;
    }
    diag_error(d, e->at, "missing-attribute", "<%s> lacks %s", e->name, want->name);
    diag_caret(d, "add %s=\"%s\"", want->name, want->example ? want->example : want->words[0]);
}

static void check_attributes(struct arena *a, struct diag *d, struct xml_element *e, const struct element_rule *rule)
{
    for (uint32_t i = 0; i < e->nattrs; i++) {
        const struct attr_rule *found = find_attr(rule, e->attrs[i].name);
        if (found)
            check_value(a, d, found, &e->attrs[i]);
        else
            unknown_attribute(d, e, rule, &e->attrs[i]);
    }
    for (size_t k = 0; k < rule->nattrs; k++)
        if (rule->attrs[k].required)
            check_missing(d, e, rule, &rule->attrs[k]);
    if (e->text.length)
        diag_error(d, e->text, "stray-text", "text does not belong in <%s>", e->name);
}

static void unknown_element(struct diag *d, const struct xml_element *e)
{
    const char *names[ARRAY_LEN(elements)], *near;
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(elements); i++)
        if (!strcmp(elements[i].parent, e->parent->name))
            names[n++] = elements[i].name;
    const struct element_rule *elsewhere = find_rule(e->name, NULL);
    if (elsewhere) {
        diag_error(d, e->at, "misplaced-element", "<%s> does not belong in <%s>", e->name, e->parent->name);
        diag_caret(d, "it stands in <%s>", elsewhere->parent);
        return;
    }
    diag_error(d, e->at, "unknown-element", "unknown element <%.64s> in <%s>", e->name, e->parent->name);
    if ((near = diag_nearest(e->name, names, n)))
        diag_caret(d, "did you mean '%s'?", near);
}

static void check_occurrences(struct diag *d, const struct xml_element *e)
{
    for (size_t i = 0; i < ARRAY_LEN(elements); i++) {
        const struct element_rule *rule = &elements[i];
        if (strcmp(rule->parent, e->name) != 0)
            continue;
        const struct xml_element *first = topo_child(e, rule->name, NULL);
        const struct xml_element *second = first ? topo_child(e, rule->name, first) : NULL;
        if (!first && (rule->occurs == ONCE || rule->occurs == ONCE_OR_MORE)) {
            diag_error(d, e->at, "missing-element", "<%s> lacks a <%s>", e->name, rule->name);
            diag_help(d, "add %s", rule->example);
        } else if (second && (rule->occurs == ONCE || rule->occurs == AT_MOST_ONCE)) {
            diag_error(d, second->at, "repeated-element", "a second <%s> in <%s>", rule->name, e->name);
            diag_note(d, first->at, "the first one");
        }
    }
}

static void check_element(struct arena *a, struct diag *d, struct xml_element *e)
{
    const struct element_rule *rule = find_rule(e->name, e->parent ? e->parent->name : "");
    if (!rule) {
        unknown_element(d, e);
        return;
    }
    if (!rule->attrs)
        return;
    check_attributes(a, d, e, rule);
    check_occurrences(d, e);
    for (struct xml_element *c = e->child; c && diag_errors(d) < ERRORS_ENOUGH; c = c->next)
        check_element(a, d, c);
}

void topo_rules_check(struct arena *a, struct diag *d, struct xml_element *root)
{
    if (!strcmp(root->name, "cluster")) {
        check_element(a, d, root);
        return;
    }
    diag_error(d, root->at, "unknown-element", "this is a <%.64s>, not a <cluster>", root->name);
    if (!strcmp(root->name, "system"))
        diag_help(d, "an NCCL dump belongs in a node type: <topology format=\"nccl\" href=\"...\"/>");
}

/* ---- reading checked attributes ---- */

static const struct xml_attr *valid_attr(const struct xml_element *e, const char *name)
{
    const struct xml_attr *v = xml_attr(e, name);
    return v && v->valid ? v : NULL;
}

bool topo_attr_real(const struct xml_element *e, const char *name, double *value)
{
    const struct xml_attr *v = valid_attr(e, name);
    if (v)
        *value = v->real;
    return v;
}

bool topo_attr_count(const struct xml_element *e, const char *name, uint32_t *value)
{
    const struct xml_attr *v = valid_attr(e, name);
    if (v)
        *value = v->integer < UINT32_MAX ? (uint32_t)v->integer : UINT32_MAX;
    return v;
}

bool topo_attr_bytes(const struct xml_element *e, const char *name, uint64_t *value)
{
    const struct xml_attr *v = valid_attr(e, name);
    if (v)
        *value = v->integer;
    return v;
}

const char *topo_attr_text(const struct xml_element *e, const char *name)
{
    const struct xml_attr *v = valid_attr(e, name);
    return v ? v->value : NULL;
}

bool topo_attr_yes(const struct xml_element *e, const char *name, bool otherwise)
{
    const struct xml_attr *v = valid_attr(e, name);
    return v ? v->integer == 1 : otherwise;
}

bool topo_attr_given(const struct xml_element *e, const char *name)
{
    return xml_attr(e, name);
}

const struct xml_element *topo_child(const struct xml_element *parent, const char *name,
                                     const struct xml_element *after)
{
    for (const struct xml_element *c = after ? after->next : parent->child; c; c = c->next)
        if (!strcmp(c->name, name))
            return c;
    return NULL;
}
