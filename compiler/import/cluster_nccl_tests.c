/* A table of nccl-tests: a curve of one collective, with what the lines around it say of ranks, nodes and GPUs.
 *
 * The operation stands in "Collective test starting: all_reduce_perf" of later versions, or in the command line that
 * was copied along.  Out-of-place times are taken, as a cluster file's own tables are read. */

#include "compiler/import/cluster_facts.h"
#include "compiler/import/lines.h"

#include "compiler/support/units.h"
#include "compiler/topology/topo_catalogue.h"
#include "compiler/topology/topo_table.h"

#include <math.h>
#include <stdlib.h>

#define RANKS_MAX 1048576u

/* names of the programs, and the cluster file's words for what they measure */
static const struct {
    const char *program, *op;
} programs[] = {
    {"all_reduce_perf", "all_reduce"},
    {"all_gather_perf", "all_gather"},
    {"reduce_scatter_perf", "reduce_scatter"},
    {"alltoall_perf", "all_to_all"},
    {"sendrecv_perf", "send_recv"},
    {"broadcast_perf", "broadcast"},
    {"reduce_perf", NULL},
    {"gather_perf", NULL},
    {"scatter_perf", NULL},
    {"hypercube_perf", NULL},
};

struct rank_line {
    uint32_t rank;
    const char *host;
    struct span at;
};

struct table {
    struct cluster_facts *f;
    const struct source *source;
    VEC(struct rank_line) ranks;
    VEC(struct topo_point) points;
    double busbw_gb_s; /* of the last row */
    const char *gpu;   /* the driver's name */
    struct span gpu_at, op_at, points_at;
    const char *op;
};

/* the program that a word names, behind the last '/' of a path */
static bool read_program(struct table *t, struct span word)
{
    const char *s = word.source->text + word.start;
    for (size_t i = 0; i < ARRAY_LEN(programs); i++) {
        size_t n = strlen(programs[i].program);
        if (word.length < n || memcmp(s + word.length - n, programs[i].program, n) != 0 ||
            (word.length > n && s[word.length - n - 1] != '/'))
            continue;
        struct span at = {word.source, word.start + word.length - (uint32_t)n, (uint32_t)n};
        if (!programs[i].op) {
            diag_error(t->f->diag, at, "unsupported", "a cluster file has no curves of %s", programs[i].program);
            return false;
        }
        if (t->op && strcmp(t->op, programs[i].op) != 0) {
            diag_error(t->f->diag, at, "bad-table", "two operations in one file");
            diag_note(t->f->diag, t->op_at, "the first one");
            diag_help(t->f->diag, "one file for each table");
            return false;
        }
        t->op = programs[i].op;
        t->op_at = at;
        return true;
    }
    return true;
}

/* "#  Rank  0 Group  0 Pid 17 on node1 device  0 [0x1b] NVIDIA H100 80GB HBM3", from behind "Rank" */
static bool read_rank(struct table *t, struct line l)
{
    struct rank_line r = {0};
    struct span word;
    if (!line_word(&l, &r.at) || !line_number(r.at, &r.rank))
        return true; /* a line about something else */
    while (line_word(&l, &word))
        if (line_word_is(word, "on") && line_word(&l, &word)) {
            r.host = line_copy(t->f->arena, word);
            break;
        }
    while (line_word(&l, &word) && word.source->text[word.start + word.length - 1] != ']')
        ;
    struct span gpu = line_rest(&l);
    if (!r.host || !gpu.length || gpu.start < word.start)
        return true;
    if (r.rank >= RANKS_MAX || t->ranks.n == RANKS_MAX) {
        diag_error(t->f->diag, r.at, "too-many", "more than %u ranks", RANKS_MAX);
        return false;
    }
    if (t->gpu && (gpu.length != strlen(t->gpu) || memcmp(gpu.source->text + gpu.start, t->gpu, gpu.length) != 0)) {
        diag_error(t->f->diag, gpu, "bad-table", "the ranks have different GPUs");
        diag_note(t->f->diag, t->gpu_at, "the first one's");
        return false;
    }
    if (!t->gpu) {
        t->gpu = line_copy(t->f->arena, gpu);
        t->gpu_at = gpu;
    }
    vec_push(t->f->arena, &t->ranks, r);
    return true;
}

static bool read_row(struct table *t, const struct line *l)
{
    struct topo_point p = {0};
    double time_us;
    if (!topo_table_row(l->source->text + l->at, l->end - l->at, &p.bytes, &time_us, &t->busbw_gb_s))
        return true;
    struct span at = {l->source, (uint32_t)l->at, (uint32_t)(l->end - l->at)};
    p.seconds = time_us * 1e-6;
    if (t->points.n == TOPO_TABLE_POINTS_MAX) {
        diag_error(t->f->diag, at, "too-many", "more than %u points in one curve", TOPO_TABLE_POINTS_MAX);
        return false;
    }
    if (t->points.n && p.bytes <= t->points.at[t->points.n - 1].bytes) {
        diag_error(t->f->diag, line_rest(l), "bad-table", "sizes must grow from row to row");
        diag_help(t->f->diag, "one file for each table");
        return false;
    }
    if (!t->points.n)
        t->points_at = line_rest(l);
    vec_push(t->f->arena, &t->points, p);
    return true;
}

static bool read_lines(struct table *t)
{
    for (struct line l = line_first(t->source); line_next(&l);) {
        struct span word;
        struct line words = l;
        if (!read_row(t, &l))
            return false;
        while (line_word(&words, &word)) {
            if (line_word_is(word, "Rank") && !read_rank(t, words))
                return false;
            if (!read_program(t, word))
                return false;
        }
    }
    return true;
}

static int by_rank(const void *a, const void *b)
{
    const struct rank_line *p = a, *q = b;
    return (p->rank > q->rank) - (p->rank < q->rank);
}

static int by_host(const void *a, const void *b)
{
    const struct rank_line *p = a, *q = b;
    return strcmp(p->host, q->host);
}

/* How many ranks, and how many of them on each host: where all of 0 .. n-1 are listed. */
static bool count_ranks(struct table *t, struct cluster_curve *curve)
{
    size_t n = t->ranks.n;
    struct rank_line *r = t->ranks.at;
    if (!n)
        return true;
    qsort(r, n, sizeof *r, by_rank);
    for (size_t i = 1; i < n; i++)
        if (r[i].rank == r[i - 1].rank) {
            diag_error(t->f->diag, r[i].at, "bad-table", "rank %u is listed twice", r[i].rank);
            diag_help(t->f->diag, "one file for each table");
            return false;
        }
    if (r[n - 1].rank != n - 1) /* an excerpt */
        return true;
    curve->ranks = (uint32_t)n;
    qsort(r, n, sizeof *r, by_host);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && !strcmp(r[end].host, r[i].host);)
            end++;
        if (i && end - i != curve->per_node) {
            diag_error(t->f->diag, r[i].at, "bad-table", "host %s has %zu of the ranks, but %s has %u", r[i].host,
                       end - i, r[0].host, curve->per_node);
            return false;
        }
        curve->per_node = (uint32_t)(end - i);
    }
    return true;
}

bool cluster_read_nccl_tests(struct cluster_facts *f, const struct cluster_file *file)
{
    struct table t = {.f = f, .source = file->source};
    struct cluster_curve curve = {0};
    if (!read_lines(&t) || !count_ranks(&t, &curve))
        return false;
    if (!t.points.n) {
        diag_error(f->diag, (struct span){file->source, 0, 0}, "bad-table", "no row of an nccl-tests table");
        return false;
    }
    const char *model = t.gpu ? topo_catalogue_driver_name(t.gpu) : NULL;
    if (model && !cluster_say(f, KEY_GPU, model, t.gpu_at))
        return false;
    if (t.gpu && !model && f->facts[KEY_GPU].is != FACT_SET)
        diag_warning(f->diag, t.gpu_at, "unknown-gpu", "the catalogue has no GPU of that name");
    curve.op = t.op;
    curve.npoints = t.points.n;
    curve.points = t.points.at;
    curve.from = t.points_at;
    const struct topo_point *last = &t.points.at[t.points.n - 1];
    double expected = t.op && curve.ranks > 1
                          ? last->bytes / last->seconds * 1e-9 * topo_table_bus_factor(t.op, curve.ranks)
                          : 0;
    if (expected > 1 && fabs(t.busbw_gb_s / expected - 1) > 0.05)
        diag_warning(f->diag, t.op_at, "bad-table", "busbw of the last row does not fit %s over %u ranks", t.op,
                     curve.ranks);
    vec_push(f->arena, &f->curves, curve);
    return true;
}
