/* Facts as the text of a cluster file.  At its head a comment says which file each fact is from, and what is assumed.
 */

#include "compiler/import/cluster_facts.h"

#include "compiler/support/strbuf.h"
#include "compiler/support/units.h"
#include "compiler/topology/hostlist.h"
#include "compiler/topology/topo_catalogue.h"
#include "compiler/topology/topo_rules.h"

#include <ctype.h>
#include <inttypes.h>

struct writer {
    struct cluster_facts *f;
    const struct topo_catalogue_gpu *row;
    uint32_t gpus;
    struct topo_scale_up scale_up;
    const struct cluster_links *links; /* that scale_up is from, or NULL */
    struct strbuf b;
};

/* ---- scale-up ---- */

static bool too_many_links(struct writer *w, const struct cluster_links *x, uint32_t links)
{
    diag_error(w->f->diag, x->from, "contradiction", "%s says that a GPU has %u NVLinks, but %s has %u",
               x->from.source->name, links, w->row->gpu.model, topo_catalogue_nvlinks(w->row));
    diag_note(w->f->diag, w->f->facts[KEY_GPU].from, "the model");
    return false;
}

/* What links are with this GPU.  A matrix shows links to a switch as links of every pair: as many as the GPU has. */
static bool resolve(struct writer *w, const struct cluster_links *x, struct topo_scale_up *s)
{
    uint32_t most = topo_catalogue_nvlinks(w->row), each = x->sum;
    bool switched = x->by == LINKS_SWITCH;
    *s = (struct topo_scale_up){.kind = SCALE_UP_NONE, .gpus = 1};
    if (x->by == LINKS_NONE)
        return true;
    if (x->by == LINKS_EITHER && x->pair &&
        (x->sum > most || (x->pair == most && w->row->scale_up == SCALE_UP_NVSWITCH))) {
        switched = true;
        each = x->pair;
    }
    if (each > most)
        return too_many_links(w, x, each);
    s->kind = switched ? SCALE_UP_NVSWITCH : SCALE_UP_MESH;
    s->bytes_s = each * topo_catalogue_nvlink_bytes_s(w->row);
    s->gpus = x->domain;
    return true;
}

static bool find_scale_up(struct writer *w)
{
    struct cluster_facts *f = w->f;
    for (size_t i = 0; i < f->links.n; i++) {
        const struct cluster_links *x = &f->links.at[i];
        struct topo_scale_up s;
        if (x->node_gpus != w->gpus)
            continue;
        if (!resolve(w, x, &s))
            return false;
        if (w->links &&
            (s.kind != w->scale_up.kind || s.bytes_s != w->scale_up.bytes_s || s.gpus != w->scale_up.gpus)) {
            diag_error(f->diag, x->from, "contradiction", "%s says %s of %s, but %s says %s of %s",
                       x->from.source->name, topo_scale_up_words[s.kind], units_show_bytes_s(s.bytes_s).s,
                       w->links->from.source->name, topo_scale_up_words[w->scale_up.kind],
                       units_show_bytes_s(w->scale_up.bytes_s).s);
            return false;
        }
        w->links = x;
        w->scale_up = s;
    }
    if (w->links)
        return true;
    w->scale_up = (struct topo_scale_up){
        .kind = w->row->scale_up, .bytes_s = w->row->bidirectional_bytes_s / 2, .gpus = w->gpus};
    if (w->gpus > 1)
        cluster_assume(f, "GPUs are joined as %s's usual machine joins them", w->row->gpu.model);
    return true;
}

static void note_links(struct writer *w)
{
    const struct cluster_links *x = w->links;
    if (x && w->scale_up.kind == SCALE_UP_MESH && !x->pair)
        cluster_assume(w->f, "a GPU's NVLinks lead to all GPUs alike; in fact pairs have different numbers of them");
    if (x && !x->in_order)
        cluster_assume(w->f, "NVLink joins GPUs in a row; in fact it joins others");
}

/* ---- measurements ---- */

/* Curves with what is set, against the cluster and each other. */
static bool check_curves(struct writer *w)
{
    struct cluster_facts *f = w->f;
    for (size_t i = 0; i < f->curves.n; i++) {
        struct cluster_curve *c = &f->curves.at[i];
        c->op = c->op ? c->op : f->facts[KEY_OP].text;
        c->ranks = c->ranks ? c->ranks : cluster_count(f, KEY_RANKS);
        c->per_node = c->per_node ? c->per_node : cluster_count(f, KEY_PER_NODE);
        if (c->per_node > w->gpus || c->ranks > (uint64_t)w->gpus * f->nnodes) {
            diag_error(f->diag, c->from, "contradiction",
                       "%s was measured over %u ranks%s, but the cluster has %s of %s", c->from.source->name, c->ranks,
                       c->per_node ? arena_printf(f->arena, ", %u on a node", c->per_node) : "",
                       units_show_count(f->nnodes, "node").s, units_show_count(w->gpus, "GPU").s);
            return false;
        }
        for (size_t k = 0; k < i; k++)
            if (!strcmp(f->curves.at[k].op, c->op) && f->curves.at[k].ranks == c->ranks &&
                f->curves.at[k].per_node == c->per_node) {
                diag_error(f->diag, c->from, "contradiction", "%s and %s are both of %s over %u ranks",
                           c->from.source->name, f->curves.at[k].from.source->name, c->op, c->ranks);
                return false;
            }
    }
    return true;
}

static void write_curves(struct writer *w)
{
    const struct cluster_facts *f = w->f;
    if (f->curves.n)
        strbuf_text(&w->b, "  <measured>\n");
    for (size_t i = 0; i < f->curves.n; i++) {
        const struct cluster_curve *c = &f->curves.at[i];
        strbuf_printf(&w->b, "    <collective op=\"%s\" ranks=\"%u\"", c->op, c->ranks);
        if (c->per_node)
            strbuf_printf(&w->b, " per-node=\"%u\"", c->per_node);
        strbuf_text(&w->b, ">\n");
        for (size_t k = 0; k < c->npoints; k++)
            strbuf_printf(&w->b, "      <point size=\"%.0fB\" time=\"%.10gus\"/>\n", c->points[k].bytes,
                          c->points[k].seconds * 1e6);
        strbuf_text(&w->b, "    </collective>\n");
    }
    if (f->curves.n)
        strbuf_text(&w->b, "  </measured>\n");
}

/* ---- node type and nodes ---- */

static void write_attribute(struct strbuf *b, const char *name, const char *value)
{
    strbuf_printf(b, " %s=\"", name);
    for (const char *c = value; *c; c++)
        if (strchr("&<>\"", *c))
            strbuf_printf(b, "&#%d;", *c);
        else
            strbuf_char(b, *c);
    strbuf_char(b, '"');
}

static void write_scale_up(struct writer *w)
{
    const struct topo_scale_up *s = &w->scale_up;
    uint32_t span = cluster_count(w->f, KEY_SPAN);
    bool joins = s->kind != SCALE_UP_NONE && w->gpus * (span ? span : 1) > 1;
    if (!joins && w->gpus == 1)
        return;
    strbuf_printf(&w->b, "    <scale-up kind=\"%s\"", topo_scale_up_words[joins ? s->kind : SCALE_UP_NONE]);
    if (joins)
        strbuf_printf(&w->b, " bandwidth=\"%.10gGB/s\"", s->bytes_s / 1e9);
    if (joins && span > 1)
        strbuf_printf(&w->b, " span=\"%u\"", span);
    else if (joins && s->gpus < w->gpus)
        strbuf_printf(&w->b, " gpus=\"%u\"", s->gpus);
    strbuf_text(&w->b, "/>\n");
}

static void write_nics(struct writer *w)
{
    const struct cluster_facts *f = w->f;
    for (size_t i = 0; i < f->nics.n; i++)
        strbuf_printf(&w->b, "    <nic count=\"%u\" bandwidth=\"%.10gGb/s\"/>\n", f->nics.at[i].count,
                      f->nics.at[i].bytes_s * 8 / 1e9);
    if (!f->nics.n && f->facts[KEY_NICS].text && f->facts[KEY_NIC].text)
        strbuf_printf(&w->b, "    <nic count=\"%s\" bandwidth=\"%s\"/>\n", f->facts[KEY_NICS].text,
                      f->facts[KEY_NIC].text);
}

static void write_nodes(struct writer *w)
{
    const struct cluster_facts *f = w->f;
    strbuf_printf(&w->b, "  <nodes type=\"node\" count=\"%u\"", f->nnodes);
    if (f->nodes) {
        strbuf_text(&w->b, " names=\"");
        hostlist_print(&w->b, f->nodes, f->nnodes);
        strbuf_char(&w->b, '"');
    }
    strbuf_text(&w->b, "/>\n");
}

static void write_node_type(struct writer *w)
{
    const struct cluster_facts *f = w->f;
    strbuf_printf(&w->b, "  <node-type id=\"node\" gpus=\"%u\">\n    <gpu", w->gpus);
    write_attribute(&w->b, "model", f->facts[KEY_GPU].text);
    strbuf_text(&w->b, "/>\n");
    write_scale_up(w);
    write_nics(w);
    if (f->dump) {
        strbuf_text(&w->b, "    <topology format=\"nccl\"");
        write_attribute(&w->b, "href", f->dump->href);
        strbuf_text(&w->b, "/>\n");
    }
    strbuf_text(&w->b, "  </node-type>\n");
}

/* ---- fabric ---- */

/* the nodes of a level's largest group; *even: all groups but a smaller last one have as many */
static uint32_t largest(const struct cluster_facts *f, const struct cluster_level *level, bool *even)
{
    uint32_t most = 0, first = 0, n = 0;
    *even = true;
    for (uint32_t i = 0; i < f->nnodes; i++) {
        n++;
        if (i + 1 < f->nnodes && level->group_of[i + 1] == level->group_of[i])
            continue;
        first = first ? first : n;
        *even = *even && (n == first || (i + 1 == f->nnodes && n < first));
        most = n > most ? n : most;
        n = 0;
    }
    return most;
}

static bool is_id(const char *s)
{
    size_t n = strlen(s);
    return n <= 63 && isalpha((unsigned char)*s);
}

static void write_groups(struct writer *w, const struct cluster_level *level)
{
    const struct cluster_facts *f = w->f;
    for (uint32_t i = 0, end; i < f->nnodes; i = end) {
        uint32_t g = level->group_of[i];
        for (end = i; end < f->nnodes && level->group_of[end] == g;)
            end++;
        strbuf_printf(&w->b, "    <group tier=\"%s\"", level->name);
        if (is_id(level->groups[g]))
            strbuf_printf(&w->b, " name=\"%s\"", level->groups[g]);
        else
            strbuf_printf(&w->b, " name=\"group-%u\"", g);
        strbuf_text(&w->b, " nodes=\"");
        hostlist_print(&w->b, f->nodes + i, end - i);
        strbuf_text(&w->b, "\"/>\n");
    }
}

/* Spans must grow from tier to tier, as multiples of each other: where groups are uneven, and above, a span says no
 * more than that, and the groups are named. */
static void write_tiers(struct writer *w)
{
    const struct cluster_facts *f = w->f;
    uint32_t inner = f->nlevels ? f->nlevels - 1 : 0, uneven = inner;
    uint64_t below = 1;
    for (uint32_t k = 0; k < inner; k++) {
        bool even;
        uint64_t span = largest(f, &f->levels[k], &even);
        uneven = even || k > uneven ? uneven : k;
        if (k >= uneven)
            span = (span / below + (span % below != 0 || span == below)) * below;
        strbuf_printf(&w->b, "    <tier name=\"%s\" span=\"%" PRIu64 "\"/>\n", f->levels[k].name, span);
        below = span;
    }
    strbuf_printf(&w->b, "    <tier name=\"%s\" span=\"all\"/>\n", f->nlevels ? f->levels[inner].name : "leaf");
    for (uint32_t k = uneven; k < inner; k++)
        write_groups(w, &f->levels[k]);
}

static void write_fabric(struct writer *w)
{
    const struct cluster_facts *f = w->f;
    strbuf_text(&w->b, "  <fabric");
    if (f->facts[KEY_MEDIUM].text)
        write_attribute(&w->b, "medium", f->facts[KEY_MEDIUM].text);
    strbuf_text(&w->b, ">\n");
    write_tiers(w);
    strbuf_text(&w->b, "  </fabric>\n");
}

/* ---- head ---- */

/* Text in a comment, where two '-' in a row may not stand. */
static void write_plain(struct strbuf *b, const char *text)
{
    for (const char *c = text; *c; c++)
        strbuf_char(b, *c < ' ' || *c > '~' ? '?' : *c == '-' && c > text && c[-1] == '-' ? '_' : *c);
}

/* the facts from a file, or those that are set where it is NULL */
static void write_origin(struct writer *w, const struct cluster_file *file)
{
    const struct cluster_facts *f = w->f;
    struct strbuf list = {0};
    for (uint32_t k = 0; k < NCLUSTER_KEYS; k++) {
        const struct cluster_fact *x = &f->facts[k];
        bool here = file ? x->from.source == file->source : x->is == FACT_SET;
        if (x->is != FACT_OPEN && here)
            strbuf_printf(&list, ", %s%s", cluster_keys[k], x->is == FACT_GUESSED ? " (a guess)" : "");
    }
    if (file && w->links && w->links->from.source == file->source)
        strbuf_text(&list, ", scale-up");
    if (file && f->nlevels && file->format == CLUSTER_SLURM && f->levels_from == file->source)
        strbuf_text(&list, ", tiers");
    for (size_t i = 0; file && i < f->curves.n; i++)
        if (f->curves.at[i].from.source == file->source)
            strbuf_text(&list, ", a curve");
    if (list.length || file) {
        strbuf_text(&w->b, "     ");
        write_plain(&w->b, file ? file->source->name : "set");
        strbuf_printf(&w->b, "%s%s%s: %s\n", file ? " (" : "", file ? cluster_formats[file->format] : "",
                      file ? ")" : "", list.length ? list.text + 2 : "nothing that others do not say");
    }
    strbuf_free(&list);
}

static void write_head(struct writer *w)
{
    const struct cluster_facts *f = w->f;
    strbuf_text(&w->b, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- Made by 'llmc topo import' from\n");
    for (size_t i = 0; i < f->nfiles; i++)
        write_origin(w, &f->files[i]);
    write_origin(w, NULL);
    for (size_t i = 0; i < f->assumed.n; i++) {
        strbuf_text(&w->b, i ? "     " : "     Assumed, or left out:\n     ");
        write_plain(&w->b, f->assumed.at[i]);
        strbuf_text(&w->b, i + 1 < f->assumed.n ? ";\n" : "\n");
    }
    strbuf_text(&w->b, "-->\n<cluster version=\"1\"");
    if (f->facts[KEY_NAME].text)
        write_attribute(&w->b, "name", f->facts[KEY_NAME].text);
    strbuf_text(&w->b, ">\n");
}

/* The dump beside the cluster file would contradict what is set otherwise. */
static void settle_dump(struct cluster_facts *f)
{
    static const enum cluster_key keys[] = {KEY_GPUS, KEY_GPU, KEY_NICS, KEY_NIC, KEY_SPAN};
    for (size_t i = 0; i < ARRAY_LEN(keys) && f->dump; i++)
        if (f->facts[keys[i]].against == f->dump->source) {
            cluster_assume(f, "%s says otherwise than what is set, so paths between GPUs and NICs are left out",
                           f->dump->source->name);
            f->dump = NULL;
        }
}

/* NICs of different speeds cannot be counted anew. */
static bool settle_nics(struct cluster_facts *f)
{
    if (!f->nics.n || f->facts[KEY_NICS].is != FACT_SET)
        return true;
    diag_error(f->diag, f->facts[KEY_NICS].from, "bad-value", "the NICs have different speeds: set nic as well");
    diag_note(f->diag, f->facts[KEY_NIC].from, "%s", f->facts[KEY_NIC].text);
    return false;
}

char *cluster_write(struct cluster_facts *f)
{
    struct writer w = {.f = f, .row = topo_catalogue_find(f->facts[KEY_GPU].text), .gpus = cluster_count(f, KEY_GPUS)};
    if (!find_scale_up(&w) || !settle_nics(f) || !check_curves(&w))
        return NULL;
    settle_dump(f);
    note_links(&w);
    uint32_t span = cluster_count(f, KEY_SPAN);
    bool network = f->nnodes > (span ? span : 1) || f->nlevels > 1;
    if (network && !f->nlevels)
        cluster_assume(f, "one tier joins all nodes");
    if (network)
        cluster_assume(f, "no tier is oversubscribed");
    write_head(&w);
    write_node_type(&w);
    write_nodes(&w);
    if (network)
        write_fabric(&w);
    write_curves(&w);
    strbuf_text(&w.b, "</cluster>\n");
    char *text = arena_strndup(f->arena, w.b.text, w.b.length);
    strbuf_free(&w.b);
    return text;
}
