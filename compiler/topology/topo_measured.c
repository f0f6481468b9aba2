/* Measurements: curves of collectives and of matrix products, inline or as tables that nccl-tests printed.  Every curve
 * is kept as seconds over bytes, sizes ascending. */

#include "compiler/topology/topo_table.h"
#include "compiler/topology/topo_walk.h"

#include "compiler/support/strbuf.h"
#include "compiler/support/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct curve {
    VEC(struct topo_point) points;
};

static int by_size(const void *a, const void *b)
{
    const struct topo_point *p = a, *q = b;
    return (p->bytes > q->bytes) - (p->bytes < q->bytes);
}

/* ---- collectives ---- */

static bool add_point(struct walk *w, struct curve *c, struct topo_point p, struct span at)
{
    if (c->points.n >= TOPO_TABLE_POINTS_MAX) {
        diag_error(w->diag, at, "too-many", "more than %u points in one curve", TOPO_TABLE_POINTS_MAX);
        return false;
    }
    vec_push(w->arena, &c->points, p);
    return true;
}

static void read_collective_points(struct walk *w, const struct xml_element *e, const struct topo_measured *m,
                                   struct curve *c)
{
    for (const struct xml_element *x = topo_child(e, "point", NULL); x; x = topo_child(e, "point", x)) {
        struct topo_point p = {0};
        double busbw = 0;
        bool rate = topo_attr_given(x, "busbw"), time = topo_attr_given(x, "time");
        if (rate == time) {
            diag_error(w->diag, x->at, "missing-attribute", "<point> needs %s busbw %s time",
                       rate ? "only one of" : "either", rate ? "and" : "or");
            continue;
        }
        if (!topo_attr_real(x, "size", &p.bytes))
            continue;
        if (topo_attr_real(x, "busbw", &busbw))
            p.seconds = p.bytes * topo_table_bus_factor(m->kind, m->ranks) / busbw;
        else if (!topo_attr_real(x, "time", &p.seconds))
            continue;
        if (p.seconds <= 0) {
            diag_error(w->diag, xml_attr(x, time ? "time" : "busbw")->at, "bad-value",
                       "a measurement takes longer than no time");
            continue;
        }
        if (!add_point(w, c, p, x->at))
            return;
    }
}

static void check_ascending(struct walk *w, struct curve *c, struct span at)
{
    if (c->points.n)
        qsort(c->points.at, c->points.n, sizeof *c->points.at, by_size);
    for (size_t i = 1; i < c->points.n; i++)
        if (c->points.at[i].bytes <= c->points.at[i - 1].bytes) {
            diag_error(w->diag, at, "repeated-name", "two points for a size of %s",
                       units_show_bytes((uint64_t)c->points.at[i].bytes).s);
            return;
        }
}

static void read_table(struct walk *w, const struct xml_attr *href, const struct topo_measured *m, struct curve *c)
{
    const struct source *s = walk_import(w, href);
    if (!s)
        return;
    double factor = topo_table_bus_factor(m->kind, m->ranks), off = 0;
    for (size_t at = 0; at < s->size;) {
        const char *newline = memchr(s->text + at, '\n', s->size - at);
        size_t length = newline ? (size_t)(newline - s->text) - at : s->size - at;
        double bytes, time_us, busbw;
        if (topo_table_row(s->text + at, length, &bytes, &time_us, &busbw)) {
            struct topo_point p = {.bytes = bytes, .seconds = time_us * 1e-6};
            if (!add_point(w, c, p, href->at))
                return;
            double expected = bytes / time_us * 1e-3 * factor; /* GB/s */
            if (busbw > 1 && expected > 0)
                off = fmax(off, fabs(busbw / expected - 1));
        }
        at += length + 1;
    }
    if (!c->points.n) {
        diag_error(w->diag, href->at, "bad-table", "%s has no row of an nccl-tests table", s->name);
    } else if (off > 0.05) {
        diag_warning(w->diag, href->at, "bad-table", "busbw in %s does not fit %s over %u ranks", s->name, m->kind,
                     m->ranks);
        diag_help(w->diag, "check op and ranks; the times are used as they stand");
    }
}

/* The same element with the table's points in it. */
static void replace_table(struct walk *w, const struct xml_element *e, const struct curve *c)
{
    static const char *const kept[] = {"op", "ranks", "per-node", "tier", "type"};
    struct strbuf b = {0};
    strbuf_text(&b, "<collective");
    for (size_t i = 0; i < ARRAY_LEN(kept); i++)
        if (topo_attr_text(e, kept[i]))
            strbuf_printf(&b, " %s=\"%s\"", kept[i], topo_attr_text(e, kept[i]));
    strbuf_text(&b, ">");
    for (size_t i = 0; i < c->points.n; i++)
        strbuf_printf(&b, "<point size=\"%sB\" time=\"%ss\"/>", units_show_real(c->points.at[i].bytes).s,
                      units_show_real(c->points.at[i].seconds).s);
    strbuf_text(&b, "</collective>");
    walk_replace(w, e, arena_strndup(w->arena, b.text, b.length), b.length);
    strbuf_free(&b);
}

/* The level that a collective crosses: as stated, or the innermost that holds its ranks. */
static bool read_tier(struct walk *w, const struct xml_element *e, uint32_t type, struct topo_measured *m)
{
    const struct topo *t = w->topo;
    const char *name = topo_attr_text(e, "tier");
    if (!name) {
        uint32_t gpus = m->per_node ? m->per_node : 1;
        uint64_t nodes = (m->ranks + (uint64_t)gpus - 1) / gpus;
        m->tier = topo_level_name(t, topo_level_of_nodes(t, type, nodes));
        return true;
    }
    for (uint32_t k = 0; k <= t->ntiers; k++)
        if (!strcmp(topo_level_name(t, k), name)) {
            m->tier = topo_level_name(t, k);
            return true;
        }
    diag_error(w->diag, xml_attr(e, "tier")->at, "unknown-tier", "there is no tier '%s'", name);
    return false;
}

static void read_collective(struct walk *w, const struct xml_element *e, struct topo_measured *m)
{
    const struct topo *t = w->topo;
    uint32_t type = 0;
    struct curve c = {0};
    bool table = topo_attr_given(e, "href"), inline_points = topo_child(e, "point", NULL);
    if (!topo_attr_text(e, "op") || !topo_attr_count(e, "ranks", &m->ranks) || !t->ntypes)
        return;
    m->kind = topo_attr_text(e, "op");
    if (m->ranks < 2) {
        diag_error(w->diag, xml_attr(e, "ranks")->at, "bad-value", "a collective has at least 2 ranks");
        return;
    }
    if (topo_attr_given(e, "type") && !walk_type(w, e, "type", &type))
        return;
    m->type = topo_attr_given(e, "type") || t->ntypes == 1 ? t->types[type].id : NULL;
    if (!topo_attr_count(e, "per-node", &m->per_node))
        m->per_node = m->ranks < t->types[type].gpus ? m->ranks : t->types[type].gpus;
    else if (m->type && m->per_node > t->types[type].gpus)
        diag_error(w->diag, xml_attr(e, "per-node")->at, "bad-value", "a node of type '%s' has %u GPUs", m->type,
                   t->types[type].gpus);
    else if (m->ranks % m->per_node)
        diag_error(w->diag, xml_attr(e, "per-node")->at, "bad-value", "%u ranks are not whole nodes of %u", m->ranks,
                   m->per_node);
    if (!read_tier(w, e, type, m))
        return;
    if (table == inline_points) {
        diag_error(w->diag, e->at, "missing-element", "<collective> needs %s <point>s %s href",
                   table ? "only one of" : "either", table ? "and" : "or");
        return;
    }
    if (table && !topo_attr_given(e, "format")) {
        diag_error(w->diag, e->at, "missing-attribute", "<collective> with href lacks format");
        diag_caret(w->diag, "add format=\"nccl-tests\"");
    } else if (table && xml_attr(e, "href")->valid) {
        read_table(w, xml_attr(e, "href"), m, &c);
        replace_table(w, e, &c);
    } else if (!table) {
        read_collective_points(w, e, m, &c);
    }
    check_ascending(w, &c, e->at);
    m->npoints = (uint32_t)c.points.n;
    m->points = c.points.at;
}

/* ---- matrix products ---- */

/* rate or efficiency of one point, as operations/s of this type; 0 after an error */
static double gemm_flop_s(struct walk *w, const struct xml_element *x, const struct topo_node_type *type,
                          uint32_t dtype)
{
    double peak = type->gpu.peak_flop_s[dtype], share = 0, flop_s = 0;
    bool rate = topo_attr_given(x, "rate"), efficiency = topo_attr_given(x, "efficiency");
    if (rate == efficiency) {
        diag_error(w->diag, x->at, "missing-attribute", "<point> needs %s rate %s efficiency",
                   rate ? "only one of" : "either", rate ? "and" : "or");
        return 0;
    }
    if (topo_attr_real(x, "efficiency", &share))
        return share * peak;
    if (topo_attr_real(x, "rate", &flop_s) && peak > 0 && flop_s > peak) {
        diag_error(w->diag, xml_attr(x, "rate")->at, "above-peak", "faster than the %s peak of %s",
                   topo_dtype_words[dtype], type->gpu.model);
        diag_caret(w->diag, "which is %s", units_show_flop_s(peak).s);
        return 0;
    }
    return flop_s;
}

static void read_gemm_points(struct walk *w, const struct xml_element *e, const struct topo_node_type *type,
                             uint32_t dtype, struct topo_measured *m)
{
    struct curve c = {0};
    for (const struct xml_element *x = topo_child(e, "point", NULL); x; x = topo_child(e, "point", x)) {
        uint32_t size[3] = {0};
        if (!topo_attr_count(x, "m", &size[0]) || !topo_attr_count(x, "n", &size[1]) ||
            !topo_attr_count(x, "k", &size[2]))
            continue;
        struct topo_point p = {.m = size[0], .n = size[1], .k = size[2], .flop_s = gemm_flop_s(w, x, type, dtype)};
        if (p.flop_s <= 0)
            continue;
        p.seconds = 2 * p.m * p.n * p.k / p.flop_s;
        if (!add_point(w, &c, p, x->at))
            break;
    }
    m->npoints = (uint32_t)c.points.n;
    m->points = c.points.at;
}

static bool has_rate(const struct xml_element *e)
{
    for (const struct xml_element *x = topo_child(e, "point", NULL); x; x = topo_child(e, "point", x))
        if (topo_attr_given(x, "rate"))
            return true;
    return false;
}

/* Without type= an efficiency holds for every type whose GPU has such a peak; a rate must say whose it is. */
static void read_gemm(struct walk *w, const struct xml_element *e, const char *date)
{
    const struct topo *t = w->topo;
    uint32_t type = 0, first = 0, n = 0, dtype;
    bool typed = topo_attr_given(e, "type");
    if (!topo_attr_count(e, "dtype", &dtype) || (typed && !walk_type(w, e, "type", &type)))
        return;
    for (uint32_t i = t->ntypes; i-- > 0;)
        if (t->types[i].gpu.peak_flop_s[dtype] > 0) {
            n++;
            first = i;
        }
    if (!typed && n > 1 && has_rate(e)) {
        diag_error(w->diag, e->at, "missing-attribute", "<gemm> with rates lacks type");
        diag_caret(w->diag, "add type=\"%s\"", t->types[first].id);
        return;
    }
    const struct topo_gpu *gpu = &t->types[typed ? type : 0].gpu;
    if (typed ? gpu->peak_flop_s[dtype] <= 0 : n == 0) {
        if (gpu->model)
            diag_error(w->diag, xml_attr(e, "dtype")->at, "unknown-gpu", "%s has no %s peak", gpu->model,
                       topo_dtype_words[dtype]);
        return;
    }
    for (uint32_t i = typed ? type : 0; i < t->ntypes && (!typed || i == type); i++) {
        if (t->types[i].gpu.peak_flop_s[dtype] <= 0)
            continue;
        struct topo_measured m = {
            .date = date, .kind = "gemm", .type = t->types[i].id, .dtype = topo_dtype_words[dtype]};
        read_gemm_points(w, e, &t->types[i], dtype, &m);
        if (m.npoints)
            vec_push(w->arena, &w->measured, m);
    }
}

/* ---- attention and memory-bound kernels ---- */

static void read_attention_points(struct walk *w, const struct xml_element *e, struct curve *c)
{
    for (const struct xml_element *x = topo_child(e, "point", NULL); x; x = topo_child(e, "point", x)) {
        uint32_t places, head;
        struct topo_point p = {0};
        if (!topo_attr_count(x, "sequence", &places) || !topo_attr_count(x, "head", &head) ||
            !topo_attr_real(x, "forward", &p.flop_s) || !topo_attr_real(x, "backward", &p.backward_flop_s))
            continue;
        p.m = places;
        p.n = head;
        if (p.flop_s <= 0 || p.backward_flop_s <= 0)
            diag_error(w->diag, x->at, "bad-value", "a measurement takes longer than no time");
        else if (!add_point(w, c, p, x->at))
            return;
    }
}

static void read_kernel_points(struct walk *w, const struct xml_element *e, struct curve *c)
{
    for (const struct xml_element *x = topo_child(e, "point", NULL); x; x = topo_child(e, "point", x)) {
        struct topo_point p = {0};
        if (!topo_attr_real(x, "size", &p.bytes) || !topo_attr_real(x, "time", &p.seconds))
            continue;
        if (p.seconds <= 0 || p.bytes <= 0)
            diag_error(w->diag, x->at, "bad-value", "a measurement takes longer than no time");
        else if (!add_point(w, c, p, x->at))
            return;
    }
    check_ascending(w, c, e->at);
}

/* of one dtype on one type of node, or on all */
static void read_kernel(struct walk *w, const struct xml_element *e, struct topo_measured *m)
{
    const struct topo *t = w->topo;
    uint32_t type = 0, dtype;
    struct curve c = {0};
    const char *name = topo_attr_text(e, "op");
    bool attention = !strcmp(e->name, "attention");
    if (!topo_attr_count(e, "dtype", &dtype) || (!attention && !name))
        return;
    if (topo_attr_given(e, "type") && !walk_type(w, e, "type", &type))
        return;
    m->kind = attention ? "attention" : "kernel";
    m->type = topo_attr_given(e, "type") || t->ntypes == 1 ? t->types[type].id : NULL;
    m->dtype = topo_dtype_words[dtype];
    if (!attention && (!isa_find(name, &m->op) || isa_info(m->op)->unit != UNIT_STREAM)) {
        diag_error(w->diag, xml_attr(e, "op")->at, "unknown-kernel", "'%.64s' is no memory-bound instruction", name);
        diag_help(w->diag, "llmc isa lists them");
        return;
    }
    if (attention)
        read_attention_points(w, e, &c);
    else
        read_kernel_points(w, e, &c);
    m->npoints = (uint32_t)c.points.n;
    m->points = c.points.at;
}

/* ---- <measured> ---- */

void walk_measured(struct walk *w)
{
    for (const struct xml_element *e = topo_child(w->root, "measured", NULL); e && w->topo->ntypes;
         e = topo_child(w->root, "measured", e)) {
        const char *date = topo_attr_text(e, "date") ? topo_attr_text(e, "date") : "";
        for (const struct xml_element *x = e->child; x; x = x->next) {
            struct topo_measured m = {.date = date};
            if (!strcmp(x->name, "collective"))
                read_collective(w, x, &m);
            else if (!strcmp(x->name, "gemm"))
                read_gemm(w, x, date);
            else if (!strcmp(x->name, "kernel") || !strcmp(x->name, "attention"))
                read_kernel(w, x, &m);
            if (m.npoints)
                vec_push(w->arena, &w->measured, m);
        }
    }
    w->topo->nmeasured = (uint32_t)w->measured.n;
    w->topo->measured = w->measured.at;
}
