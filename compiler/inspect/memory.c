/* `show --memory`: what the arena of a role holds, by named lines that add up to it, and live bytes over the
 * step.
 *
 * Persistent buffers are summed by kind.  Step buffers are shown at the moment of the highest live sum,
 * grouped by name without layer and bucket numbers; in the summary by ring, as gradients and as temporaries.
 * The rest of the arena is what placement could not share at that moment. */

#include "compiler/inspect/show.h"

#include "compiler/inspect/fitted.h"
#include "compiler/inspect/table.h"
#include "compiler/model/sema.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/units.h"
#include "compiler/support/vec.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[NBUFFER_KINDS] = {
    [BUFFER_STEP] = "step buffers",      [BUFFER_PARAM] = "parameters",
    [BUFFER_MASTER] = "master weights",  [BUFFER_MOMENT1] = "first moments",
    [BUFFER_MOMENT2] = "second moments", [BUFFER_BLOCK] = "step block",
    [BUFFER_METRICS] = "metrics",        [BUFFER_WORKSPACE] = "kernels' workspace",
    [BUFFER_SCALE] = "loss scale",
};

struct line {
    char name[48];
    uint64_t bytes;
    uint32_t count;
    bool step;
};
struct bill {
    VEC(struct line) lines;
    uint64_t live_bytes, rest_bytes, arena_bytes;
};

/* "grad.layer12" -> "grad.layer*": buffers that differ only in their first number are one line */
static void stem(const struct buffer *b, char *out, size_t size)
{
    size_t n = 0;
    bool replaced = false;
    for (size_t i = 0; i < sizeof b->name && b->name[i] && n + 1 < size; i++) {
        bool digit = isdigit((unsigned char)b->name[i]) && i > 0;
        if (digit && n > 0 && out[n - 1] == '*')
            continue;
        bool star = digit && !replaced;
        replaced = replaced || digit;
        out[n++] = star ? '*' : b->name[i];
    }
    out[n] = 0;
}

void show_memory_class(const struct program *p, const struct buffer *b, char *out, size_t size)
{
    if (b->kind != BUFFER_STEP)
        snprintf(out, size, "%s", kind_names[b->kind]);
    else if (b->ring != NONE)
        snprintf(out, size, "ring %.*s, %u deep", (int)sizeof p->rings[b->ring].name, p->rings[b->ring].name,
                 p->rings[b->ring].depth);
    else
        snprintf(out, size,
                 !strncmp(b->name, "grad.", 5) || !strncmp(b->name, "reduced.", 8) ? "gradients" : "temporaries");
}

static void add_line(struct arena *a, struct bill *b, const char *name, uint64_t bytes, bool step)
{
    if (bytes == 0)
        return;
    for (size_t i = 0; i < b->lines.n; i++) {
        if (strcmp(b->lines.at[i].name, name) == 0 && b->lines.at[i].step == step) {
            b->lines.at[i].bytes += bytes;
            b->lines.at[i].count++;
            return;
        }
    }
    struct line line = {.bytes = bytes, .count = 1, .step = step};
    snprintf(line.name, sizeof line.name, "%s", name);
    vec_push(a, &b->lines, line);
}

static int by_bytes(const void *x, const void *y)
{
    const struct line *a = x, *b = y;
    if (a->step != b->step)
        return a->step - b->step;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return strcmp(a->name, b->name);
}

static struct bill make_bill(struct arena *a, const struct program *p, const struct sim_role *r, bool classes)
{
    struct bill b = {.arena_bytes = p->arena_bytes - program_host_bytes(p)};
    const uint64_t *at = simulate_memory_at(a, p, r, r->peak_ns);
    for (uint32_t i = 0; i < p->nbuffers; i++) {
        const struct buffer *buffer = &p->buffers[i];
        char name[48];
        if (buffer->host)
            continue;
        if (classes || buffer->kind != BUFFER_STEP)
            show_memory_class(p, buffer, name, sizeof name);
        else
            stem(buffer, name, sizeof name);
        add_line(a, &b, name, at[i], buffer->kind == BUFFER_STEP);
        b.live_bytes += at[i];
    }
    qsort(b.lines.at, b.lines.n, sizeof *b.lines.at, by_bytes);
    b.rest_bytes = b.arena_bytes > b.live_bytes ? b.arena_bytes - b.live_bytes : 0;
    return b;
}

static void add_sum(struct table *t, struct arena *a, const char *name, uint64_t bytes)
{
    const char **cell = table_row(t);
    cell[0] = name;
    cell[1] = arena_strdup(a, units_show_bytes(bytes).s);
    cell[3] = arena_printf(a, "= %s bytes", units_show_commas(bytes).s);
}

static void print_bill(const struct plan *p, FILE *out, struct arena *a, uint32_t role, bool classes, uint32_t width)
{
    static const struct table_column columns[] = {
        {"", .left = true, .wraps = true}, {"", .may = 0}, {"", .may = 0}, {"", .left = true}};
    const struct sim_role *r = &p->timeline->roles[role];
    struct bill b = make_bill(a, p->train[role], r, classes);
    struct table *t = table_new(a, columns, ARRAY_LEN(columns));
    double whole = (double)b.arena_bytes / 100;
    struct fitted head;
    if (fitted_open(&head)) {
        fprintf(head.stream, "memory of %spipeline rank %u (rank %u), at the step's peak %s after its begin\n",
                job_is_modelled(p->job) ? "llmc's programs on " : "", role, show_first_rank(p, role),
                units_show_seconds((double)(r->peak_ns - r->begin_ns) / 1e9).s);
        fitted_close(&head, width, out);
    }
    for (size_t i = 0; i <= b.lines.n; i++) {
        const struct line *l = i < b.lines.n ? &b.lines.at[i] : NULL;
        uint64_t bytes = l ? l->bytes : b.rest_bytes;
        const char **cell = table_row(t);
        cell[0] = l ? l->name : "not live at the peak";
        cell[1] = arena_strdup(a, units_show_bytes(bytes).s);
        cell[2] = arena_printf(a, "%.1f%%", (double)bytes / whole);
        cell[3] = l && l->count > 1 ? arena_printf(a, "%u buffers", l->count) : "";
    }
    add_sum(t, a, "arena", b.arena_bytes);
    uint64_t host = program_host_bytes(p->train[role]);
    if (host)
        add_sum(t, a, "in host memory", host);
    table_print(t, 2, width, out);
}

void show_memory_bill(const struct plan *p, FILE *out, uint32_t role, uint32_t width)
{
    struct arena *a = arena_new();
    for (uint32_t r = 0; role == NONE && r < p->nroles; r++) {
        if (show_first_rank(p, r) == plan_predicted(p).peak_memory_rank)
            role = r;
    }
    print_bill(p, out, a, role, true, width);
    arena_free(a);
}

/* --- live bytes over time --- */

#define PLOT_ROWS 8u

/* highest live bytes within each of n equal parts of the role's step */
static uint64_t *columns_of(struct arena *a, const struct program *p, const struct sim_role *r, int64_t step_ns,
                            uint32_t n)
{
    uint64_t *most = ARENA_ARRAY(a, uint64_t, n);
    uint32_t npoints;
    const struct live_point *points = simulate_memory(a, p, r, &npoints);
    for (uint32_t i = 0; i < npoints; i++) {
        int64_t start = points[i].at_ns - r->begin_ns;
        int64_t end = i + 1 < npoints ? points[i + 1].at_ns - r->begin_ns : step_ns;
        uint32_t c = step_ns > 0 ? (uint32_t)((double)start * n / (double)step_ns) : 0;
        for (; c < n && (int64_t)((double)step_ns * c / n) <= end; c++) {
            if (points[i].bytes > most[c])
                most[c] = points[i].bytes;
        }
    }
    return most;
}

static void print_plot(const struct plan *p, FILE *out, struct arena *a, uint32_t role, const struct show_options *o)
{
    static const char *const eighths[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const ascii[] = {" ", ".", ".", ".", "o", "o", "o", "#", "#"};
    uint32_t n = o->width > 40 ? o->width - 16 : 24;
    const struct program *program = p->train[role];
    uint64_t bytes = program->arena_bytes - program_host_bytes(program);
    const uint64_t *most = columns_of(a, program, &p->timeline->roles[role], p->timeline->step_ns, n);
    for (uint32_t row = PLOT_ROWS; row-- > 0;) {
        uint64_t label = bytes / PLOT_ROWS * (row + 1);
        if (row % 2 == 1)
            fprintf(out, "%12s %s", units_show_bytes(label).s, o->unicode ? "┤" : "|");
        else
            fprintf(out, "%12s %s", "", o->unicode ? "│" : "|");
        for (uint32_t c = 0; c < n; c++) {
            double level = bytes ? (double)most[c] * PLOT_ROWS * 8 / (double)bytes - 8.0 * row : 0;
            int eighth = level < 0 ? 0 : level > 8 ? 8 : (int)level;
            fputs(o->unicode ? eighths[eighth] : ascii[eighth], out);
        }
        fputc('\n', out);
    }
    fprintf(out, "%12s %s", "0", o->unicode ? "└" : "+");
    for (uint32_t c = 0; c < n; c++)
        fputs(o->unicode ? "─" : "-", out);
    fprintf(out, "\n%13s 0%*s\n", "", (int)n - 1, units_show_seconds((double)p->timeline->step_ns / 1e9).s);
}

/* --- JSON --- */

/* with_points: also live bytes at every change */
static void print_json(const struct plan *p, FILE *out, struct arena *a, uint32_t only, bool with_points)
{
    struct strbuf b = {0};
    strbuf_json(&b, "{'schema': 1, 'target': %s, 'roles': [", job_target(p->job));
    const char *comma = "";
    for (uint32_t r = 0; r < p->nroles; r++) {
        if (only != NONE && only != r)
            continue;
        const struct sim_role *role = &p->timeline->roles[r];
        struct bill bill = make_bill(a, p->train[r], role, false);
        strbuf_text(&b, comma);
        strbuf_json(&b,
                    "\n  {'role': %u, 'first_rank': %u, 'arena_bytes': %lu, 'live_peak_bytes': %lu, 'live_peak_s': %g, "
                    "'items': [",
                    r, show_first_rank(p, r), bill.arena_bytes, role->peak_live_bytes,
                    (double)(role->peak_ns - role->begin_ns) / 1e9);
        for (size_t i = 0; i < bill.lines.n; i++) {
            const struct line *l = &bill.lines.at[i];
            strbuf_text(&b, i ? ", " : "");
            strbuf_json(&b, "{'name': %s, 'persistent': %d, 'bytes': %lu}", l->name, !l->step, l->bytes);
        }
        strbuf_json(&b, "], 'not_live_bytes': %lu, 'live': [", bill.rest_bytes);
        uint32_t n = 0;
        const struct live_point *points = with_points ? simulate_memory(a, p->train[r], role, &n) : NULL;
        for (uint32_t i = 0; i < n; i++)
            strbuf_json(&b, i ? ", [%g, %lu]" : "[%g, %lu]", (double)(points[i].at_ns - role->begin_ns) / 1e9,
                        points[i].bytes);
        strbuf_text(&b, "]}");
        comma = ",";
    }
    fprintf(out, "%s\n]}\n", b.text);
    strbuf_free(&b);
}

void show_memory(const struct plan *p, FILE *out, const struct show_options *o)
{
    struct arena *a = arena_new();
    uint32_t only = NONE;
    const char *why;
    show_role(a, p, o, &only, &why);
    if (o->json)
        print_json(p, out, a, only, !o->brief);
    for (uint32_t r = 0; r < p->nroles && !o->json; r++) {
        if (only != NONE && only != r)
            continue;
        struct arena_mark mark = arena_mark(a);
        fputs(r > 0 && only == NONE ? "\n" : "", out);
        print_bill(p, out, a, r, false, o->width);
        print_plot(p, out, a, r, o);
        arena_reset(a, mark);
    }
    arena_free(a);
}
