/* `show --timeline`: the simulated step, one line per pipeline rank, time to the right.
 *
 * A column is an equal part of the window.  It shows computing, by the action that does most of it; idleness; or
 * exposed communication: whichever has been shown least for its share so far, so that a line as a whole has the shares
 * of its rank, at any width.  A block starts with its microbatch's number where it fits, and on a rank of several
 * stages with a letter for the stage: a for its first one.  Lanes of communication queues show how full a column is.
 * The table below it has the figures of plan.json: causes of idleness in per cent of the step, by simulate.h's rules,
 * and who was waited for, as many as the line holds. */

#include "compiler/inspect/show.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/units.h"

#include <string.h>

enum { CELL_IDLE = -1, CELL_COMM = -2 };
struct column {
    int64_t current_ns, best_ns, busy_ns, idle_ns, comm_ns;
    int32_t current, best; /* block */
};

struct lane {
    const struct plan *p;
    uint32_t role, ncolumns;
    int64_t from_ns, to_ns; /* the window */
    uint32_t *chunk;        /* by stage: how many of the rank's stages come before it; NULL where it has one */
    struct show_block *blocks;
    uint32_t nblocks;
    struct column *columns;
    int32_t *cells; /* block, CELL_IDLE or CELL_COMM */
};

static int64_t column_start(const struct lane *l, uint32_t c)
{
    return l->from_ns + (int64_t)((double)(l->to_ns - l->from_ns) * c / l->ncolumns);
}

static void settle(struct column *c)
{
    if (c->current_ns > c->best_ns) {
        c->best = c->current;
        c->best_ns = c->current_ns;
    }
    c->current_ns = 0;
}

/* time from start to end belongs to a block or an idle kind; called in order of time */
static void add_span(struct lane *l, int64_t start, int64_t end, int32_t what)
{
    start = start > l->from_ns ? start : l->from_ns;
    end = end < l->to_ns ? end : l->to_ns;
    if (start >= end)
        return;
    uint32_t c = (uint32_t)((double)(start - l->from_ns) * l->ncolumns / (double)(l->to_ns - l->from_ns));
    for (c = c > 0 ? c - 1 : 0; c < l->ncolumns && column_start(l, c) < end; c++) {
        int64_t lo = column_start(l, c), hi = column_start(l, c + 1);
        int64_t part = (end < hi ? end : hi) - (start > lo ? start : lo);
        struct column *column = &l->columns[c];
        if (part <= 0)
            continue;
        if (what == CELL_IDLE) {
            column->idle_ns += part;
        } else if (what == CELL_COMM) {
            column->comm_ns += part;
        } else {
            if (column->current != what)
                settle(column);
            column->current = what;
            column->current_ns += part;
            column->busy_ns += part;
        }
    }
}

/* what each column shows */
static void choose_cells(struct lane *l)
{
    double owed[3] = {0}; /* columns of computing, idleness and exposed communication that were not shown yet */
    for (uint32_t c = 0; c < l->ncolumns; c++) {
        struct column *column = &l->columns[c];
        settle(column);
        const int64_t ns[3] = {column->busy_ns, column->idle_ns, column->comm_ns}, whole = ns[0] + ns[1] + ns[2];
        int most = 1;
        for (int k = 0; k < 3; k++) {
            owed[k] += whole ? (double)ns[k] / (double)whole : k == 1;
            if (ns[k] && (!ns[most] || owed[k] > owed[most]))
                most = k;
        }
        owed[most] -= 1;
        l->cells[c] = most == 2 ? CELL_COMM : most == 1 ? CELL_IDLE : column->best;
    }
}

static void fill_lane(struct arena *a, struct lane *l)
{
    const struct program *p = l->p->train[l->role];
    const struct sim_role *r = &l->p->timeline->roles[l->role];
    l->blocks = show_blocks(a, p, r, &l->nblocks);
    l->columns = ARENA_ARRAY(a, struct column, l->ncolumns);
    l->cells = ARENA_ARRAY(a, int32_t, l->ncolumns);
    int32_t block = 0;
    for (uint32_t i = 0; i < p->ninsns; i++) {
        if (p->insns[i].queue != QUEUE_COMPUTE)
            continue;
        while (i > l->blocks[block].last)
            block++;
        enum unit unit = isa_info(p->insns[i].op)->unit;
        if (unit != UNIT_P2P && unit != UNIT_COLLECTIVE) /* a transfer on this queue is among the idle intervals */
            add_span(l, r->insns[i].start_ns, r->insns[i].end_ns, block);
    }
    add_span(l, 0, r->begin_ns, CELL_IDLE);
    for (uint32_t i = 0; i < r->nidles; i++)
        add_span(l, r->idles[i].start_ns, r->idles[i].end_ns, r->idles[i].cause == IDLE_COMM ? CELL_COMM : CELL_IDLE);
    add_span(l, r->begin_ns + l->p->timeline->step_ns, l->to_ns, CELL_IDLE);
    choose_cells(l);
}

/* --- drawing --- */

struct look {
    char action;
    const char *name, *unicode, *ascii, *colour;
};
static const struct look looks[] = {
    {'F', "forward", "░", "-", "\033[97;44m"},        {'B', "backward", "▓", "=", "\033[30;42m"},
    {'I', "input gradient", "▒", "+", "\033[30;46m"}, {'W', "weight gradient", "▚", "*", "\033[30;43m"},
    {'O', "optimizer", "█", "#", "\033[97;45m"},      {'&', "both at once", "▞", "%", "\033[97;46m"},
};

static const struct look *look_of(char action)
{
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        if (looks[i].action == action)
            return &looks[i];
    }
    return &looks[4];
}

/* the microbatch of an action, and the letter of its stage where the rank has several; not NONE */
static int action_text(char *out, size_t size, const struct lane *l, uint32_t microbatch, uint32_t stage, bool letters)
{
    if (!letters || !l->chunk || stage >= l->p->decision.nstages)
        return snprintf(out, size, "%u", microbatch);
    return snprintf(out, size, "%u%c", microbatch, 'a' + (int)(l->chunk[stage] % 26));
}

static uint32_t block_text(char *out, size_t size, const struct lane *l, const struct show_block *b, bool letters)
{
    if (b->microbatch == NONE)
        return 0;
    int n = action_text(out, size, l, b->microbatch, b->stage, letters);
    if (b->other) {
        out[n++] = '&';
        n += action_text(out + n, size - (size_t)n, l, b->other_microbatch, b->other_stage, letters);
    }
    return (uint32_t)n;
}

/* at which column a block that begins in column c gets its label: its first run of columns with room for all of it, or
 * for a short one; *letters: it is the whole one.  NONE: nowhere */
static uint32_t label_column(const struct show_options *o, const struct lane *l, uint32_t c, bool *letters)
{
    const struct show_block *b = &l->blocks[l->cells[c]];
    char text[64];
    const uint32_t edge = o->colour ? 0 : 1; /* a column that shows what the block is */
    const uint32_t whole = block_text(text, sizeof text, l, b, true) + edge,
                   least = block_text(text, sizeof text, l, b, false) + edge;
    uint32_t found = NONE;
    *letters = false;
    for (uint32_t end, at = c; at < l->ncolumns && (l->cells[at] < 0 || l->cells[at] == l->cells[c]); at = end) {
        for (end = at + 1; end < l->ncolumns && l->cells[end] == l->cells[at];)
            end++;
        if (l->cells[at] < 0 || whole == edge)
            continue;
        if (end - at >= whole) {
            *letters = true;
            return at;
        }
        if (found == NONE && end - at >= least)
            found = at;
    }
    return found;
}

/* a run of columns of one block; text: its label, or "" */
static void draw_block(FILE *out, const struct show_options *o, const struct show_block *b, uint32_t width,
                       const char *text)
{
    const struct look *look = look_of(b->other ? '&' : b->action);
    fprintf(out, "%s%s", o->colour ? look->colour : "", text);
    for (uint32_t k = (uint32_t)strlen(text); k < width; k++)
        fputs(o->colour ? " " : o->unicode ? look->unicode : look->ascii, out);
    fputs(o->colour ? "\033[0m" : "", out);
}

static void draw_idle(FILE *out, const struct show_options *o, uint32_t width, bool comm)
{
    fputs(o->colour ? comm ? "\033[31m" : "\033[2m" : "", out);
    for (uint32_t k = 0; k < width; k++)
        fputs(comm ? "~" : o->unicode ? "·" : ".", out);
    fputs(o->colour ? "\033[0m" : "", out);
}

static void draw_lane(FILE *out, const struct show_options *o, const struct lane *l)
{
    int32_t told = CELL_IDLE; /* the last block whose label has a place, `place` */
    uint32_t place = NONE;
    bool letters = false;
    for (uint32_t end, c = 0; c < l->ncolumns; c = end) {
        int32_t cell = l->cells[c];
        for (end = c + 1; end < l->ncolumns && l->cells[end] == cell;)
            end++;
        if (cell < 0) {
            draw_idle(out, o, end - c, cell == CELL_COMM);
            continue;
        }
        if (cell != told)
            place = label_column(o, l, c, &letters);
        told = cell;
        char text[64] = "";
        if (c == place)
            block_text(text, sizeof text, l, &l->blocks[cell], letters);
        draw_block(out, o, &l->blocks[cell], end - c, text);
    }
}

/* how full each column of a communication queue is */
static void draw_queue(FILE *out, struct arena *a, const struct show_options *o, const struct lane *l, enum queue q)
{
    static const char *const unicode[] = {" ", "▁", "▂", "▄", "▆", "█"}, *const ascii[] = {" ", ".", ":",
                                                                                           "+", "%", "#"};
    const struct program *p = l->p->train[l->role];
    const struct sim_role *r = &l->p->timeline->roles[l->role];
    struct lane busy = {.ncolumns = l->ncolumns, .from_ns = l->from_ns, .to_ns = l->to_ns};
    busy.columns = ARENA_ARRAY(a, struct column, l->ncolumns);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        if (p->insns[i].queue == q)
            add_span(&busy, r->insns[i].start_ns, r->insns[i].end_ns, CELL_COMM);
    }
    for (uint32_t c = 0; c < l->ncolumns; c++) {
        int64_t whole = column_start(l, c + 1) - column_start(l, c), part = busy.columns[c].comm_ns;
        int level = part <= 0 || whole <= 0 ? 0 : 1 + (int)(4 * part / whole);
        fputs(o->unicode ? unicode[level] : ascii[level], out);
    }
}

static bool uses_queue(const struct program *p, enum queue q)
{
    for (uint32_t i = 0; i < p->ninsns; i++) {
        if (p->insns[i].queue == q)
            return true;
    }
    return false;
}

/* time by column; from the window's beginning where whole times would look the same */
static void draw_axis(FILE *out, const struct lane *l, int label)
{
    const uint32_t every = 20;
    struct units_text first = units_show_seconds((double)l->from_ns / 1e9),
                      second = units_show_seconds((double)column_start(l, every) / 1e9),
                      third = units_show_seconds((double)column_start(l, 2 * every) / 1e9);
    bool since = !strcmp(first.s, second.s) || !strcmp(second.s, third.s);
    fprintf(out, "%*s", label, "");
    uint32_t at = 0;
    for (uint32_t c = 0; c < l->ncolumns; c += every) {
        bool added = since && c;
        struct units_text t = units_show_seconds((double)(column_start(l, c) - (added ? l->from_ns : 0)) / 1e9);
        uint32_t width = 1 + added + (uint32_t)strlen(t.s);
        if (c + width > l->ncolumns)
            break;
        fprintf(out, "%*s|%s%s", (int)(c - at), "", added ? "+" : "", t.s);
        at = c + width;
    }
    fputc('\n', out);
}

/* one sign of the legend, on a further line where the width ends */
static void draw_sign(FILE *out, const struct show_options *o, uint32_t *column, int label, const char *colour,
                      const char *sign, const char *meaning)
{
    uint32_t width = 3u + (o->colour && colour ? 3u : *sign ? 2u : 0u) + (uint32_t)strlen(meaning);
    bool first = *column == (uint32_t)label;
    if (!first && *column + width > o->width) {
        fprintf(out, "\n%*s", label, "");
        *column = (uint32_t)label;
        first = true;
    }
    *column += width - (first ? 3 : 0);
    fputs(first ? "" : "   ", out);
    if (o->colour && colour)
        fprintf(out, "%s  \033[0m %s", colour, meaning);
    else
        fprintf(out, "%s%s%s", sign, *sign ? " " : "", meaning);
}

static void draw_legend(FILE *out, struct arena *a, const struct plan *p, const struct show_options *o, uint32_t only,
                        int label)
{
    bool used[sizeof looks / sizeof *looks] = {false};
    for (uint32_t r = 0; r < p->nroles; r++) {
        for (uint32_t i = 0; i < p->train[r]->ninsns && (only == NONE || only == r); i++) {
            const struct insn *n = &p->train[r]->insns[i];
            if (n->queue == QUEUE_COMPUTE)
                used[look_of(n->action) - looks] = true;
        }
        uint32_t nblocks;
        const struct show_block *b = show_blocks(a, p->train[r], &p->timeline->roles[r], &nblocks);
        for (uint32_t i = 0; i < nblocks; i++)
            used[look_of('&') - looks] |= b[i].other != 0;
    }
    uint32_t column = (uint32_t)label;
    fprintf(out, "%*s", label, "");
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++)
        if (used[i])
            draw_sign(out, o, &column, label, looks[i].colour, o->unicode ? looks[i].unicode : looks[i].ascii,
                      looks[i].name);
    draw_sign(out, o, &column, label, NULL, o->unicode ? "·" : ".", "idle");
    draw_sign(out, o, &column, label, NULL, "~", "exposed communication");
    draw_sign(out, o, &column, label, NULL, "",
              p->decision.nstages > p->nroles ? "3b: microbatch 3, the rank's second stage" : "number: microbatch");
    fputc('\n', out);
}

static double percent(int64_t part, int64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

static void print_causes(FILE *out, const char *name, int64_t busy, const int64_t *idle, int64_t whole)
{
    int64_t bubble = 0;
    for (int k = 0; k < NIDLE; k++)
        bubble += k == IDLE_COMM ? 0 : idle[k];
    fprintf(out, "%-4s %6.2f  %6.2f = %7.2f + %9.2f + %5.2f + %9.2f  %7.2f", name, percent(busy, whole),
            percent(bubble, whole), percent(idle[IDLE_WARMUP], whole), percent(idle[IDLE_COOLDOWN], whole),
            percent(idle[IDLE_WAIT], whole), percent(idle[IDLE_IMBALANCE], whole), percent(idle[IDLE_COMM], whole));
}

enum { WAITED = 72 }; /* the column that says for whom */

/* who a rank waited for, longest first: in the rest of the line what fits it, or all in as many lines as that
 * takes */
static void print_waits(FILE *out, const struct timeline *t, uint32_t r, uint32_t width, bool all)
{
    const uint32_t column = WAITED, least = 8; /* a rank's number and share, on a screen of 80 columns */
    width = width < column + least ? column + least : width;
    const int64_t *waited = t->roles[r].waited_ns;
    struct strbuf b = {0};
    int64_t below = INT64_MAX; /* what has been said already */
    uint32_t after = 0;        /* of equal ones */
    for (uint32_t n = 0; n < t->nroles; n++) {
        uint32_t next = NONE;
        for (uint32_t q = 0; q < t->nroles; q++)
            if ((waited[q] < below || (waited[q] == below && q > after)) && (next == NONE || waited[q] > waited[next]))
                next = q;
        double share = next == NONE ? 0 : percent(waited[next], t->step_ns);
        if (share < 0.005)
            break;
        below = waited[next];
        after = next;
        char one[64];
        if (next == r)
            snprintf(one, sizeof one, "%sown %.2f", n ? ", " : "", share);
        else
            snprintf(one, sizeof one, "%srank %u %.2f", n ? ", " : "", next, share);
        if (!all && n && column + b.length + strlen(one) + strlen(" ...") > width) {
            strbuf_text(&b, column + b.length + strlen(" ...") <= width ? " ..." : "");
            break;
        }
        strbuf_text(&b, !all && !n && strlen(one) > least && column + strlen(one) > width ? strchr(one, ' ') + 1 : one);
    }
    struct strbuf lines = {0};
    strbuf_wrap(&lines, all && b.text ? b.text : "", column, column, width);
    if (b.length)
        fprintf(out, "  %s", all ? lines.text : b.text);
    strbuf_free(&lines);
    strbuf_free(&b);
    fputc('\n', out);
}

static void print_table(FILE *out, const struct plan *p, const struct show_options *o, uint32_t only)
{
    const struct timeline *t = p->timeline;
    int64_t busy = 0;
    fprintf(out,
            "%% of the step; waited for: the rank whose part was missing, or own transfers\n"
            "%-4s %6s  %6s = %7s + %9s + %5s + %9s  %7s  %s\n",
            "rank", "busy", "bubble", "warm-up", "cool-down", "wait", "imbalance", "exposed",
            o->width < WAITED + strlen("waited for") ? "for" : "waited for");
    for (uint32_t r = 0; r < t->nroles; r++) {
        const struct sim_role *role = &t->roles[r];
        busy += role->busy_ns;
        if (only != NONE && only != r)
            continue;
        char name[16];
        snprintf(name, sizeof name, "%u", r);
        print_causes(out, name, role->busy_ns, role->idle_ns, t->step_ns);
        print_waits(out, t, r, o->width, only != NONE);
    }
    print_causes(out, "mean", busy, t->idle_ns, t->step_ns * (int64_t)t->nroles);
    fputc('\n', out);
}

/* --- JSON --- */

static double seconds(int64_t ns)
{
    return (double)ns / 1e9;
}

static void json_causes(struct strbuf *b, const int64_t *idle)
{
    static const char *const keys[NIDLE] = {"warmup_s", "cooldown_s", "exposed_comm_s", "wait_s", "imbalance_s"};
    for (int k = 0; k < NIDLE; k++)
        strbuf_json(b, k ? ", %s: %g" : "'idle': {%s: %g", keys[k], seconds(idle[k]));
    strbuf_text(b, "}");
}

static void json_role(struct strbuf *b, struct arena *a, const struct plan *p, uint32_t r)
{
    const struct sim_role *role = &p->timeline->roles[r];
    strbuf_json(b, "{'role': %u, 'first_rank': %u, 'begin_s': %g, 'end_s': %g, 'busy_s': %g, ", r,
                show_first_rank(p, r), seconds(role->begin_ns), seconds(role->end_ns), seconds(role->busy_ns));
    json_causes(b, role->idle_ns);
    strbuf_text(b, ", \"waited_s\": [");
    for (uint32_t q = 0; q < p->nroles; q++)
        strbuf_json(b, q ? ", %g" : "%g", seconds(role->waited_ns[q]));
    strbuf_text(b, "],\n   \"blocks\": [");
    uint32_t n;
    const struct show_block *blocks = show_blocks(a, p->train[r], role, &n);
    for (uint32_t i = 0; i < n; i++) {
        strbuf_printf(b, "%s{\"action\": \"%c\"", i ? ", " : "", blocks[i].action ? blocks[i].action : '-');
        if (blocks[i].stage != NONE)
            strbuf_json(b, ", 'stage': %u", blocks[i].stage);
        if (blocks[i].microbatch != NONE)
            strbuf_json(b, ", 'microbatch': %u", blocks[i].microbatch);
        if (blocks[i].other) {
            strbuf_printf(b, ", \"other\": {\"action\": \"%c\", ", blocks[i].other);
            strbuf_json(b, "'stage': %u, 'microbatch': %u}", blocks[i].other_stage, blocks[i].other_microbatch);
        }
        strbuf_json(b, ", 'start_s': %g, 'end_s': %g}", seconds(blocks[i].start_ns), seconds(blocks[i].end_ns));
    }
    strbuf_text(b, "]}");
}

static void timeline_json(const struct plan *p, FILE *out, struct arena *a, uint32_t only)
{
    const struct predicted f = plan_predicted(p);
    struct strbuf b = {0};
    strbuf_json(&b,
                "{'schema': 1, 'target': %s, 'step_time_s': %g, 'bubble_fraction': %g, 'exposed_comm_fraction': %g, ",
                job_target(p->job), f.step_time_s, f.bubble_fraction, f.exposed_comm_fraction);
    json_causes(&b, p->timeline->idle_ns);
    strbuf_text(&b, ", \"roles\": [");
    const char *comma = "\n  ";
    for (uint32_t r = 0; r < p->nroles; r++) {
        if (only != NONE && only != r)
            continue;
        strbuf_text(&b, comma);
        json_role(&b, a, p, r);
        comma = ",\n  ";
    }
    fprintf(out, "%s\n]}\n", b.text);
    strbuf_free(&b);
}

/* the part of the step to draw, by --from, --to and --zoom */
static struct lane find_window(const struct plan *p, const struct show_options *o, int label)
{
    struct lane window = {.p = p, .ncolumns = o->width > 24 ? o->width - (uint32_t)label : 16};
    int64_t whole = 0;
    for (uint32_t r = 0; r < p->nroles; r++)
        whole = p->timeline->roles[r].end_ns > whole ? p->timeline->roles[r].end_ns : whole;
    int64_t width = o->zoom > 1 ? (int64_t)((double)whole / o->zoom) : whole;
    window.from_ns = o->from_s > 0 && 1e9 * o->from_s < (double)whole ? (int64_t)(1e9 * o->from_s) : 0;
    window.to_ns = o->to_s > 0 && 1e9 * o->to_s < (double)whole ? (int64_t)(1e9 * o->to_s) : whole;
    if (o->zoom > 1 && window.from_ns + width < window.to_ns)
        window.to_ns = window.from_ns + width;
    if (window.to_ns <= window.from_ns)
        window.to_ns = window.from_ns + 1;
    return window;
}

/* by stage of the decision: how many of the role's stages come before it; NULL where it has one stage */
static uint32_t *find_chunks(struct arena *a, const struct plan *p, uint32_t role)
{
    uint32_t n = p->decision.nstages, *chunk = ARENA_ARRAY(a, uint32_t, n + 1u), chunks = 0;
    const bool *runs = show_stages(a, p, role);
    for (uint32_t s = 0; s < n; s++) {
        chunk[s] = chunks;
        chunks += runs[s];
    }
    return chunks > 1 ? chunk : NULL;
}

void show_timeline(const struct plan *p, FILE *out, const struct show_options *o)
{
    struct arena *a = arena_new();
    const struct timeline *t = p->timeline;
    const char *why;
    uint32_t only = NONE;
    show_role(a, p, o, &only, &why);
    if (o->json) {
        timeline_json(p, out, a, only);
        arena_free(a);
        return;
    }
    const int label = 7;
    bool lanes = o->comm || only != NONE;
    const struct lane window = find_window(p, o, label);
    fprintf(out, "one step, %s; a column is %s; one line per pipeline rank\n\n",
            units_show_seconds((double)t->step_ns / 1e9).s,
            units_show_seconds((double)(window.to_ns - window.from_ns) / 1e9 / window.ncolumns).s);
    draw_axis(out, &window, label);
    for (uint32_t r = 0; r < t->nroles; r++) {
        if (only != NONE && only != r)
            continue;
        struct arena_mark mark = arena_mark(a);
        struct lane l = window;
        l.role = r;
        l.chunk = find_chunks(a, p, r);
        fill_lane(a, &l);
        fprintf(out, "%5u  ", r);
        draw_lane(out, o, &l);
        fputc('\n', out);
        for (int q = QUEUE_TP; lanes && q < NQUEUES; q++) {
            if (!uses_queue(p->train[r], (enum queue)q))
                continue;
            fprintf(out, "%5s  ", isa_queue_name((enum queue)q));
            draw_queue(out, a, o, &l, (enum queue)q);
            fputc('\n', out);
        }
        arena_reset(a, mark);
    }
    draw_legend(out, a, p, o, only, label);
    fputc('\n', out);
    print_table(out, p, o, only);
    arena_free(a);
}
