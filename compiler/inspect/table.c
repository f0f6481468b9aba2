/* Columns are measured, then made to fit: O(cells). */

#include "compiler/inspect/table.h"

#include "compiler/support/vec.h"

#include <string.h>

struct row {
    const char **cells;
};
struct table {
    struct arena *arena;
    const struct table_column *columns;
    uint32_t ncolumns;
    VEC(struct row) rows;
};
struct fit { /* how a table is printed */
    uint32_t *width;
    bool *hidden;
    uint32_t gap;
};

struct table *table_new(struct arena *a, const struct table_column *columns, uint32_t ncolumns)
{
    struct table *t = ARENA_NEW(a, struct table);
    t->arena = a;
    t->columns = columns;
    t->ncolumns = ncolumns;
    return t;
}

const char **table_row(struct table *t)
{
    struct row row = {ARENA_ARRAY(t->arena, const char *, t->ncolumns)};
    for (uint32_t c = 0; c < t->ncolumns; c++)
        row.cells[c] = "";
    vec_push(t->arena, &t->rows, row);
    return row.cells;
}

/* characters of UTF-8 in so many bytes */
static uint32_t columns_of(const char *text, size_t n)
{
    uint32_t columns = 0;
    for (size_t i = 0; i < n; i++)
        columns += ((unsigned char)text[i] & 0xc0) != 0x80;
    return columns;
}

static uint32_t length(const char *text)
{
    return columns_of(text, strlen(text));
}

static void measure(const struct table *t, struct fit *f)
{
    f->gap = 2;
    for (uint32_t c = 0; c < t->ncolumns; c++) {
        f->width[c] = length(t->columns[c].head);
        for (size_t r = 0; r < t->rows.n; r++) {
            uint32_t n = length(t->rows.at[r].cells[c]);
            f->width[c] = n > f->width[c] ? n : f->width[c];
        }
    }
}

static uint32_t total(const struct table *t, const struct fit *f)
{
    uint32_t sum = 0, shown = 0;
    for (uint32_t c = 0; c < t->ncolumns; c++) {
        sum += f->hidden[c] ? 0 : f->width[c];
        shown += !f->hidden[c];
    }
    return sum + (shown ? f->gap * (shown - 1) : 0);
}

/* makes the column that wraps narrower */
static void squeeze(const struct table *t, struct fit *f, uint32_t width)
{
    uint32_t all = total(t, f);
    for (uint32_t c = 0; c < t->ncolumns && all > width; c++) {
        uint32_t room = f->width[c] > TABLE_LEAST ? f->width[c] - TABLE_LEAST : 0;
        if (t->columns[c].wraps && !f->hidden[c])
            f->width[c] -= all - width < room ? all - width : room;
    }
}

/* leaves a column out; false: all have to stay */
static bool hide(const struct table *t, struct fit *f)
{
    uint32_t next = t->ncolumns;
    for (uint32_t c = 0; c < t->ncolumns; c++)
        if (!f->hidden[c] && t->columns[c].may && (next == t->ncolumns || t->columns[c].may > t->columns[next].may))
            next = c;
    if (next < t->ncolumns)
        f->hidden[next] = true;
    return next < t->ncolumns;
}

static void fit(const struct table *t, struct fit *f, uint32_t width)
{
    do {
        measure(t, f);
        f->gap = total(t, f) > width ? 1 : 2;
        squeeze(t, f, width);
    } while (total(t, f) > width && hide(t, f));
}

/* how many bytes of a cell go onto a line of so many columns */
static size_t piece(const char *text, uint32_t columns)
{
    size_t n = 0, blank = 0;
    for (; text[n] && columns_of(text, n + 1) <= columns; n++)
        blank = text[n] == ' ' ? n : blank;
    return !text[n] || text[n] == ' ' ? n : blank ? blank : n;
}

/* one row, on as many lines as it takes */
static void print_row(const struct table *t, const struct fit *f, const char *const *cells, uint32_t indent, FILE *out)
{
    const char **rest = ARENA_ARRAY(t->arena, const char *, t->ncolumns);
    memcpy(rest, cells, t->ncolumns * sizeof *rest);
    for (bool more = true; more;) {
        uint32_t pending = indent; /* blanks before the next text */
        bool first = true;
        more = false;
        for (uint32_t c = 0; c < t->ncolumns; c++) {
            if (f->hidden[c])
                continue;
            pending += first ? 0 : f->gap;
            first = false;
            size_t n = t->columns[c].wraps ? piece(rest[c], f->width[c]) : strlen(rest[c]);
            uint32_t columns = columns_of(rest[c], n), fill = f->width[c] > columns ? f->width[c] - columns : 0;
            pending += t->columns[c].left ? 0 : fill;
            if (n)
                fprintf(out, "%*s%.*s", (int)pending, "", (int)n, rest[c]);
            pending = (n ? 0 : pending) + (t->columns[c].left ? fill : 0);
            rest[c] += n;
            rest[c] += strspn(rest[c], " ");
            more |= *rest[c] != 0;
        }
        fputc('\n', out);
    }
}

void table_print(const struct table *t, uint32_t indent, uint32_t width, FILE *out)
{
    struct fit f = {ARENA_ARRAY(t->arena, uint32_t, t->ncolumns), ARENA_ARRAY(t->arena, bool, t->ncolumns), 2};
    const char **heads = ARENA_ARRAY(t->arena, const char *, t->ncolumns), *before = "(no room for: ";
    bool headed = false;
    fit(t, &f, width > indent ? width - indent : 0);
    for (uint32_t c = 0; c < t->ncolumns; c++) {
        heads[c] = t->columns[c].head;
        headed |= *heads[c] != 0;
    }
    if (headed)
        print_row(t, &f, heads, indent, out);
    for (size_t r = 0; r < t->rows.n; r++)
        print_row(t, &f, t->rows.at[r].cells, indent, out);
    for (uint32_t c = 0; c < t->ncolumns; c++)
        if (f.hidden[c]) {
            fprintf(out, "%s%s", before, heads[c]);
            before = ", ";
        }
    fputs(*before == ',' ? ")\n" : "", out);
}
