/* Sweeps: every combination of some statements' values, each a search of its own; rows are kept until all are
 * there, so that columns are as wide as they need to be and a sweep that is refused prints nothing. */

#include "compiler/inspect/sweep.h"

#include "compiler/inspect/estimate.h"
#include "compiler/inspect/fitted.h"
#include "compiler/inspect/forecast.h"
#include "compiler/model/sema.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/units.h"
#include "compiler/support/vec.h"

#include <string.h>

#define ROWS_MAX 4096
#define KEYS_MAX 8
#define COLUMNS 9 /* behind the keys */

struct list {
    const char *key;
    VEC(const char *) values;
};
struct row {
    const char *value[KEYS_MAX], *cell[COLUMNS];
    const char *why; /* where there is no plan */
};
static const char *const heads[COLUMNS] = {"step",      "tok/s/GPU", "MFU %", "memory", "bubble %",
                                           "exposed %", "GPUs",      "plan",  ""};

/* KEY=A,B,C or KEY=[A, B, C]; commas inside brackets and parentheses belong to a value */
static bool parse_list(struct arena *a, const char *text, struct list *l)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text)
        return false;
    l->key = arena_strndup(a, text, (size_t)(equals - text));
    const char *list = equals + 1;
    size_t n = strlen(list);
    if (n >= 2 && list[0] == '[' && list[n - 1] == ']') {
        list++;
        n -= 2;
    }
    int depth = 0;
    for (size_t i = 0, start = 0; i <= n; i++) {
        depth += i < n && strchr("[(", list[i]) ? 1 : i < n && strchr("])", list[i]) ? -1 : 0;
        if (i < n && (list[i] != ',' || depth > 0))
            continue;
        size_t from = start, to = i;
        while (from < to && list[from] == ' ')
            from++;
        while (to > from && list[to - 1] == ' ')
            to--;
        if (to == from)
            return false;
        vec_push(a, &l->values, arena_strndup(a, list + from, to - from));
        start = i + 1;
    }
    return true;
}

/* why nothing was found, in a few words */
static const char *few_words(struct arena *a, const struct diag *d, const struct search_result *r)
{
    if (r && r->has_closest && r->removed[REMOVED_MEMORY])
        return arena_printf(a, "needs %s of %s", units_show_bytes(r->closest.estimate.peak_bytes).s,
                            units_show_bytes(r->memory_limit_bytes).s);
    const char *text = diag_first(d), *details = strstr(text, ". Closest: ");
    text += strncmp(text, "no plan: ", 9) ? 0 : 9;
    return arena_strndup(a, text, details ? (size_t)(details - text) : strlen(text));
}

static void fill_cells(struct arena *a, const struct job *job, const struct topo *topo, const struct candidate *c,
                       struct row *row)
{
    struct predicted f = estimate_predicted(job, topo, c);
    uint32_t i = 0;
    row->cell[i++] = arena_strdup(a, units_show_seconds(c->estimate.step_time_s).s);
    row->cell[i++] = arena_printf(a, "%.0f", f.tokens_per_s_per_gpu);
    row->cell[i++] = arena_printf(a, "%.1f", 100 * f.mfu);
    row->cell[i++] = arena_strdup(a, units_show_bytes(c->estimate.peak_bytes).s);
    row->cell[i++] = arena_printf(a, "%.1f", 100 * f.bubble_fraction);
    row->cell[i++] = arena_printf(a, "%.1f", 100 * f.exposed_comm_fraction);
    row->cell[i++] = arena_printf(a, "%u", c->decision.gpus_used);
    row->cell[i++] = decision_text(a, job, &c->decision);
    row->cell[i++] = c->emittable ? "" : "*";
}

static void row_json(struct arena *a, const struct list *lists, uint32_t nlists, const struct row *row,
                     const char *estimate, struct strbuf *o)
{
    strbuf_text(o, "{\"schema\": 1, \"sweep\": {");
    for (uint32_t i = 0; i < nlists; i++)
        strbuf_json(o, i ? ", %s: %s" : "%s: %s", lists[i].key, row->value[i]);
    strbuf_json(o, "}, 'why': %s", row->why);
    char *line = arena_strdup(a, estimate); /* line ends stand between tokens only: strings have theirs escaped */
    for (char *p = line; *p; p++)
        *p = *p == '\n' ? ' ' : *p;
    strbuf_printf(o, ", \"estimate\": %s}\n", line);
}

static int widest(const struct row *rows, size_t n, const char *head, uint32_t key, size_t column)
{
    size_t width = strlen(head);
    for (size_t i = 0; i < n; i++) {
        const char *text = column < COLUMNS ? rows[i].cell[column] : rows[i].value[key];
        size_t length = text ? strlen(text) : 0;
        width = length > width ? length : width;
    }
    return (int)width;
}

/* the cells of a row behind its keys; beside: the plan stands in the last column, else on a line of its own */
static void print_row(const struct row *row, const int *width, bool beside, FILE *out)
{
    if (row->why) {
        fprintf(out, "%*s  %s\n", width[0], "-", row->why);
        return;
    }
    for (size_t c = 0; c + 2 < COLUMNS; c++)
        fprintf(out, "%s%*s", c ? "  " : "", width[c], row->cell[c]);
    fprintf(out, "%s%s%s%s\n", beside ? "  " : "\n    ", row->cell[COLUMNS - 2], *row->cell[COLUMNS - 1] ? " " : "",
            row->cell[COLUMNS - 1]);
}

static void print_table(const struct list *lists, uint32_t nlists, const struct row *rows, size_t n, uint32_t wide,
                        FILE *out)
{
    int key_width[KEYS_MAX], width[COLUMNS];
    uint32_t before = 0; /* columns in front of the plan */
    bool starred = false;
    for (uint32_t k = 0; k < nlists; k++) {
        key_width[k] = widest(rows, n, lists[k].key, k, COLUMNS);
        before += (uint32_t)key_width[k] + 2;
        fprintf(out, "%-*s  ", key_width[k], lists[k].key);
    }
    for (size_t c = 0; c + 2 < COLUMNS; c++) {
        width[c] = widest(rows, n, heads[c], 0, c);
        before += (uint32_t)width[c] + 2;
        fprintf(out, "%s%*s", c ? "  " : "", width[c], heads[c]);
    }
    bool beside = before + FITTED_LEAST <= wide;
    fprintf(out, "%s%s\n", beside ? "  " : "", beside ? heads[COLUMNS - 2] : "");
    for (size_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < nlists; k++)
            fprintf(out, "%-*s  ", key_width[k], rows[i].value[k]);
        print_row(&rows[i], width, beside, out);
        starred |= !rows[i].why && *rows[i].cell[COLUMNS - 1];
    }
    if (starred)
        fprintf(out, "* not emitted yet\n");
}

/* the lists; 0 after an error */
static size_t read_lists(struct arena *a, struct diag *d, const struct sweep_options *o, struct list *lists)
{
    size_t total = 1;
    for (uint32_t i = 0; i < o->nsweeps; i++) {
        if (i == KEYS_MAX || !parse_list(a, o->sweeps[i], &lists[i])) {
            diag_error(d, (struct span){0}, "usage", "--sweep takes KEY=LIST, such as tp=1,2,4,8");
            return 0;
        }
        total *= lists[i].values.n;
        if (total > ROWS_MAX) {
            diag_error(d, (struct span){0}, "usage", "a sweep has at most %u rows", ROWS_MAX);
            return 0;
        }
    }
    return total;
}

/* One row in an arena of its own, with its estimate as JSON; 1: there is a plan, 0: there is none, -1: the model is
 * refused. */
static int sweep_row(struct arena *a, struct topo *topo, const struct sweep_options *o, const char *const *sets,
                     struct row *row, struct strbuf *estimate)
{
    struct arena *own = arena_new();
    struct diag *d = diag_new(own);
    struct forecast f = {0};
    struct job *job = job_read(own, d, o->model, sets, o->nsets + o->nsweeps);
    if (job)
        job->price = o->price;
    bool found = job && forecast(own, d, job, topo, 1, o->budget, &f) == STATUS_OK;
    if (found) {
        fill_cells(a, job, topo, &f.found->candidates[0], row);
        estimate_json(job, topo, f.found, &(struct estimate_more){.plan = f.plan}, estimate);
    } else {
        row->why = few_words(a, d, f.found);
        strbuf_text(estimate, "null");
    }
    plan_close(f.plan);
    arena_free(own);
    return !job ? -1 : found;
}

enum status sweep(struct arena *a, struct diag *d, struct topo *topo, const struct sweep_options *o, FILE *out)
{
    struct list lists[KEYS_MAX] = {{0}};
    size_t n = read_lists(a, d, o, lists), refused = 0, found = 0;
    if (!n)
        return STATUS_USAGE;
    struct row *rows = ARENA_ARRAY(a, struct row, n);
    struct strbuf json = {0}, estimate = {0};
    const char **sets = ARENA_ARRAY(a, const char *, o->nsets + KEYS_MAX);
    for (uint32_t i = 0; i < o->nsets; i++)
        sets[i] = o->sets[i];
    for (size_t i = 0; i < n; i++) {
        for (size_t k = o->nsweeps, rest = i; k-- > 0; rest /= lists[k].values.n) {
            rows[i].value[k] = lists[k].values.at[rest % lists[k].values.n];
            sets[o->nsets + k] = arena_printf(a, "%s=%s", lists[k].key, rows[i].value[k]);
        }
        diag_progress(d, "row %zu of %zu", i + 1, n);
        int got = sweep_row(a, topo, o, sets, &rows[i], &estimate);
        refused += got < 0;
        found += got > 0;
        row_json(a, lists, o->nsweeps, &rows[i], estimate.text, &json);
        strbuf_clear(&estimate);
        if (refused == n) /* then the last refusal stands for all, in full */
            job_read(a, d, o->model, sets, o->nsets + o->nsweeps);
    }
    diag_progress(d, "%s", "");
    if (refused < n && o->json)
        fputs(json.text, out);
    struct fitted f;
    if (refused < n && !o->json && fitted_open(&f)) {
        print_table(lists, o->nsweeps, rows, n, o->width, f.stream);
        fitted_close(&f, o->width, out);
    }
    strbuf_free(&json);
    strbuf_free(&estimate);
    return refused == n ? STATUS_INPUT : found ? STATUS_OK : STATUS_NO_PLAN;
}
