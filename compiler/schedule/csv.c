/* Torch's pipeline CSV (torch/distributed/pipelining, format "compute_only"), written and read.
 *
 * One row per rank; a cell is <stage><letter><microbatch> or empty (an idle tick).  Rows may have different
 * lengths. F, B, I, W and overlapped pairs are read; communication actions are refused by name.
 * Numbers of stages and microbatches follow from the cells, and are bounded by the number of cells before
 * anything is sized by them. */

#include "compiler/schedule/family.h"
#include "compiler/support/vec.h"

#include <string.h>

#define MAX_CSV_BYTES (64u << 20)
#define MAX_RANKS 4096u
#define MAX_NUMBER 1000000u

void schedule_print(const struct schedule *s, FILE *out)
{
    for (uint32_t r = 0; r < s->nranks; r++) {
        const char *comma = "";
        for (uint32_t k = 0; k < s->nactions[r]; k++) {
            const struct action *t = &s->actions[r][k];
            if (t->kind == 'O')
                continue;
            bool second = k > 0 && t[-1].pair;
            fprintf(out, "%s%s%u%c%u%s", second ? ";" : comma, t->pair ? "(" : "", t->stage, t->kind, t->microbatch,
                    second ? ")OVERLAP_F_B" : "");
            comma = ",";
        }
        fputc('\n', out);
    }
}

struct cell {
    uint32_t rank;
    struct action action;
};

struct reader {
    struct arena *arena;
    const char *text;
    size_t size, at;
    uint32_t row, column; /* from 1, for messages */
    uint32_t nstages, microbatches;
    VEC(struct cell) cells;
    const char *why;
};

static bool read_number(const char *s, size_t n, size_t *at, uint32_t *value)
{
    size_t start = *at;
    uint32_t v = 0;
    while (*at < n && s[*at] >= '0' && s[*at] <= '9' && v <= MAX_NUMBER)
        v = v * 10 + (uint32_t)(s[(*at)++] - '0');
    *value = v;
    return *at > start && v <= MAX_NUMBER;
}

/* <stage><letter><microbatch> */
static bool read_action(struct reader *in, const char *s, size_t n, size_t *at, struct action *out)
{
    if (!read_number(s, n, at, &out->stage) || *at == n || !strchr("FBIW", s[*at]))
        return false;
    out->kind = s[(*at)++];
    if (!read_number(s, n, at, &out->microbatch))
        return false;
    if (out->stage >= in->nstages)
        in->nstages = out->stage + 1;
    if (out->microbatch >= in->microbatches)
        in->microbatches = out->microbatch + 1;
    return true;
}

static bool read_word(const char *s, size_t n, size_t *at, const char *word)
{
    size_t length = strlen(word);
    if (n - *at < length || memcmp(s + *at, word, length))
        return false;
    *at += length;
    return true;
}

static bool read_cell(struct reader *in, const char *s, size_t n)
{
    while (n && (s[0] == ' ' || s[0] == '\t'))
        s++, n--;
    while (n && (s[n - 1] == ' ' || s[n - 1] == '\t'))
        n--;
    if (n == 0)
        return true;
    struct cell cell = {.rank = in->row - 1}, other = cell;
    size_t at = 0;
    bool pair = read_word(s, n, &at, "("), ok = read_action(in, s, n, &at, &cell.action);
    if (pair)
        ok = ok && cell.action.kind == 'F' && read_word(s, n, &at, ";") && read_action(in, s, n, &at, &other.action) &&
             other.action.kind == 'B' && read_word(s, n, &at, ")OVERLAP_F_B");
    if (!ok || at < n) {
        int shown = n < 40 ? (int)n : 40;
        in->why = arena_printf(in->arena,
                               "row %u, cell %u: '%.*s' is neither <stage><F, B, I or W><microbatch> nor "
                               "(<F>;<B>)OVERLAP_F_B",
                               in->row, in->column, shown, s);
        return false;
    }
    cell.action.pair = pair;
    vec_push(in->arena, &in->cells, cell);
    if (pair)
        vec_push(in->arena, &in->cells, other);
    return true;
}

/* one row, its newline included; *filled says whether it had any cell */
static bool read_row(struct reader *in, bool *filled)
{
    size_t before = in->cells.n;
    in->column = 1;
    for (;;) {
        size_t start = in->at;
        while (in->at < in->size && in->text[in->at] != ',' && in->text[in->at] != '\n')
            in->at++;
        size_t end = in->at;
        bool comma = in->at < in->size && in->text[in->at] == ',';
        if (in->at < in->size)
            in->at++;
        if (!comma && end > start && in->text[end - 1] == '\r')
            end--;
        if (!read_cell(in, in->text + start, end - start))
            return false;
        if (!comma)
            break;
        in->column++;
    }
    *filled = in->cells.n > before;
    return true;
}

static struct schedule *build(struct reader *in, uint32_t nranks)
{
    struct arena *a = in->arena;
    if ((uint64_t)in->nstages * in->microbatches > in->cells.n) {
        in->why = arena_printf(a, "%zu actions are too few for %u stages and %u microbatches", in->cells.n, in->nstages,
                               in->microbatches);
        return NULL;
    }
    struct schedule *s = schedule_empty(a, nranks, in->nstages, in->microbatches, 0);
    uint32_t *room = ARENA_ARRAY(a, uint32_t, nranks);
    for (size_t i = 0; i < in->cells.n; i++)
        room[in->cells.at[i].rank]++;
    for (uint32_t r = 0; r < nranks; r++)
        s->actions[r] = ARENA_ARRAY(a, struct action, (size_t)room[r] + 1);
    for (size_t i = 0; i < in->cells.n; i++) {
        const struct action *t = &in->cells.at[i].action;
        schedule_append(s, in->cells.at[i].rank, t->kind, t->stage, t->microbatch);
        if (t->pair)
            s->actions[in->cells.at[i].rank][s->nactions[in->cells.at[i].rank] - 1].pair = true;
    }
    if (!s->forward_only)
        schedule_finish(s);
    return schedule_check(a, s, &in->why) ? s : NULL;
}

struct schedule *schedule_parse(struct arena *a, const char *text, size_t size, const char **why)
{
    struct reader in = {.arena = a, .text = text, .size = size};
    uint32_t nranks = 0;
    if (size > MAX_CSV_BYTES) {
        *why = "a schedule of more than 64 MiB is not read";
        return NULL;
    }
    while (in.at < size && in.row < MAX_RANKS) {
        in.row++;
        bool filled = false;
        if (!read_row(&in, &filled)) {
            *why = in.why;
            return NULL;
        }
        if (filled)
            nranks = in.row;
    }
    if (in.at < size || in.cells.n == 0) {
        *why = in.cells.n ? "a schedule of more than 4096 ranks is not read" : "the schedule has no actions";
        return NULL;
    }
    struct schedule *s = build(&in, nranks);
    *why = in.why;
    return s;
}
