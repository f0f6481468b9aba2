/* The check of a tree against the vocabulary.  It walks the tree once; candidates for "did you mean" come from the same
 * table. */

#include "compiler/topology/topo_rules.h"

#include "compiler/support/units.h"
#include "compiler/support/vec.h"
#include "compiler/topology/topo_vocabulary.h"

#include <inttypes.h>
#include <string.h>

#define ATTRS_MAX 16      /* attributes of one element */
#define ERRORS_ENOUGH 100 /* more are not printed anyway */

static const struct element_rule *find_rule(const char *name, const char *parent)
{
    for (size_t i = 0; i < topo_nelements; i++)
        if (!strcmp(topo_elements[i].name, name) && (!parent || !strcmp(topo_elements[i].parent, parent)))
            return &topo_elements[i];
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

/* a quantity with a unit: times may be 0, but not all of them */
static bool may_be_zero(enum value_kind kind, const char *name)
{
    return (kind == VALUE_SECONDS && strcmp(name, "mtbf") != 0) || !strcmp(name, "reserve");
}

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
    else if (v->real <= 0 && !may_be_zero(rule->kind, v->name))
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
    const char *names[topo_nelements], *near;
    size_t n = 0;
    for (size_t i = 0; i < topo_nelements; i++)
        if (!strcmp(topo_elements[i].parent, e->parent->name))
            names[n++] = topo_elements[i].name;
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
    for (size_t i = 0; i < topo_nelements; i++) {
        const struct element_rule *rule = &topo_elements[i];
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
