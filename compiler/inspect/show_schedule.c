/* `show --schedule`: the actions as emitted, as torch's CSV and as a grid of unit ticks.  `show --code`: the
 * program.
 *
 * The schedule is read off the programs' tags, so that it is what was lowered.  Grid: F, I and W take one
 * tick, B two, transfers nothing; a cell is an action, ". " an idle tick. */

#include "compiler/inspect/show.h"
#include "compiler/support/strbuf.h"

#include <stdlib.h>
#include <string.h>

/* One action of a role, and in front of a W its I where that computed nothing: a stage that only embeds.  seen: bits of
 * the kinds that a stage and microbatch have had.  Tags name stage and microbatch of the model: of two copies the
 * second has the second half of the microbatches. */
static void add_action(struct schedule *s, uint32_t role, uint64_t *seen, char action, uint32_t stage,
                       uint32_t microbatch)
{
    uint32_t chain = s->nstages / s->copies;
    if (!action || !strchr("FBIW", action) || stage >= chain || microbatch >= s->microbatches * s->copies)
        return;
    stage += microbatch / s->microbatches * chain;
    microbatch %= s->microbatches;
    uint64_t *had = &seen[(size_t)stage * s->microbatches + microbatch], bit = 1ull << (action - 'A');
    if (*had & bit) /* the rest of an interrupted action */
        return;
    if (action == 'W' && !(*had & 1ull << ('I' - 'A'))) {
        *had |= 1ull << ('I' - 'A');
        s->actions[role][s->nactions[role]++] = (struct action){'I', false, stage, microbatch};
    }
    *had |= bit;
    s->actions[role][s->nactions[role]++] = (struct action){action, false, stage, microbatch};
    s->stage_rank[stage] = role;
}

/* the schedule that the programs' tags tell */
static struct schedule *tagged_schedule(struct arena *a, const struct plan *p)
{
    struct schedule *s = ARENA_NEW(a, struct schedule);
    s->nranks = p->nroles;
    s->copies = p->decision.schedule == SCHED_DUALPIPE ? 2 : 1;
    s->nstages = s->copies * p->decision.nstages;
    s->microbatches = p->decision.microbatches / s->copies;
    s->nactions = ARENA_ARRAY(a, uint32_t, s->nranks);
    s->actions = ARENA_ARRAY(a, struct action *, s->nranks);
    s->stage_rank = ARENA_ARRAY(a, uint32_t, s->nstages);
    memset(s->stage_rank, 0xff, s->nstages * sizeof *s->stage_rank);
    uint64_t *seen = ARENA_ARRAY(a, uint64_t, (size_t)s->nstages * s->microbatches + 1); /* bits of kinds */
    for (uint32_t r = 0; r < s->nranks; r++) {
        uint32_t n;
        const struct show_block *b = show_blocks(a, p->train[r], &p->timeline->roles[r], &n);
        s->actions[r] = ARENA_ARRAY(a, struct action, 4 * (size_t)n + 1);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t before = s->nactions[r];
            add_action(s, r, seen, b[i].action, b[i].stage, b[i].microbatch);
            if (!b[i].other)
                continue;
            add_action(s, r, seen, b[i].other, b[i].other_stage, b[i].other_microbatch);
            if (s->nactions[r] == before + 2)
                s->actions[r][before].pair = true;
        }
    }
    return s;
}

struct grid {
    uint32_t nticks, nranks;
    const struct action **cells; /* [rank][tick], NULL = idle */
};

static uint32_t ticks_of(char kind)
{
    return kind == 'B' ? 2 : 1;
}

static struct grid make_grid(struct arena *a, const struct schedule *s, const struct schedule_step *order,
                             uint32_t nsteps)
{
    size_t cells = (size_t)s->nstages * s->microbatches;
    uint32_t *forward = ARENA_ARRAY(a, uint32_t, cells), *backward = ARENA_ARRAY(a, uint32_t, cells);
    uint32_t *start = ARENA_ARRAY(a, uint32_t, nsteps + 1), *free_at = ARENA_ARRAY(a, uint32_t, s->nranks);
    struct grid g = {.nranks = s->nranks};
    for (uint32_t i = 0; i < nsteps; i++) {
        const struct action *t = &s->actions[order[i].rank][order[i].index];
        size_t here = (size_t)t->stage * s->microbatches + t->microbatch;
        uint32_t ready = t->kind == 'F' ? forward[here] : t->kind == 'W' ? 0 : backward[here];
        start[i] = free_at[order[i].rank] > ready ? free_at[order[i].rank] : ready;
        uint32_t end = free_at[order[i].rank] = start[i] + ticks_of(t->kind);
        if (t->kind == 'F' && (t->stage + 1) % (s->nstages / s->copies))
            forward[here + s->microbatches] = end;
        if ((t->kind == 'B' || t->kind == 'I') && t->stage % (s->nstages / s->copies))
            backward[here - s->microbatches] = end;
        g.nticks = end > g.nticks ? end : g.nticks;
    }
    g.cells = ARENA_ARRAY(a, const struct action *, (size_t)g.nranks *g.nticks + 1);
    for (uint32_t i = 0; i < nsteps; i++) {
        const struct action *t = &s->actions[order[i].rank][order[i].index];
        for (uint32_t k = 0; k < ticks_of(t->kind); k++)
            g.cells[(size_t)order[i].rank * g.nticks + start[i] + k] = t;
    }
    return g;
}

static void print_grid(FILE *out, const struct schedule *s, const struct grid *g, uint32_t width)
{
    int cell = snprintf(NULL, 0, "F%u", s->microbatches - 1) + 1;
    if (s->nstages > s->nranks)
        cell += snprintf(NULL, 0, "%u", s->nstages - 1);
    uint32_t room = width > 20 ? (width - 8) / (uint32_t)cell : 1;
    uint32_t shown = g->nticks < room ? g->nticks : room;
    for (uint32_t r = 0; r < g->nranks; r++) {
        fprintf(out, "%5u  ", r);
        for (uint32_t k = 0; k < shown; k++) {
            const struct action *t = g->cells[(size_t)r * g->nticks + k];
            char text[32] = ".";
            if (t && s->nstages > s->nranks)
                snprintf(text, sizeof text, "%u%c%u", t->stage, t->kind, t->microbatch);
            else if (t)
                snprintf(text, sizeof text, "%c%u", t->kind, t->microbatch);
            fprintf(out, "%-*s", k + 1 < shown ? cell : 0, text);
        }
        fputs(shown < g->nticks ? " ...\n" : "\n", out);
    }
    if (shown < g->nticks)
        fprintf(out, "%5s  %u of %u ticks; a wider terminal or COLUMNS shows more\n", "", shown, g->nticks);
}

static void schedule_json(const struct plan *p, FILE *out, const struct schedule *s, uint32_t only)
{
    fprintf(
        out,
        "{\"schema\": 1, \"target\": \"%s\", \"schedule\": \"%s\", \"stages\": %u, \"microbatches\": %u, \"ranks\": [",
        job_target(p->job), schedule_name(p->decision.schedule), s->nstages, s->microbatches);
    const char *comma = "";
    for (uint32_t r = 0; r < s->nranks; r++) {
        if (only != NONE && only != r)
            continue;
        fprintf(out, "%s\n  [", comma);
        for (uint32_t k = 0; k < s->nactions[r]; k++) {
            const struct action *t = &s->actions[r][k];
            fprintf(out, "%s\"%u%c%u\"", k ? ", " : "", t->stage, t->kind, t->microbatch);
        }
        fputc(']', out);
        comma = ",";
    }
    fprintf(out, "\n]}\n");
}

void show_schedule(const struct plan *p, FILE *out, const struct show_options *o)
{
    struct arena *a = arena_new();
    const struct schedule *s = tagged_schedule(a, p);
    const char *why;
    uint32_t only = NONE, n = 0;
    show_role(a, p, o, &only, &why);
    if (o->json) {
        schedule_json(p, out, s, only);
    } else {
        fprintf(out, "# torch.distributed.pipelining CSV, one row per pipeline rank\n");
        schedule_print(s, out);
        const struct schedule_step *order = schedule_order(a, s, &n, &why);
        if (order) {
            struct grid g = make_grid(a, s, order, n);
            fprintf(out, "\n# unit ticks: F, I, W = 1, B = 2, transfers free: %u ticks\n", g.nticks);
            print_grid(out, s, &g, o->width);
        } else {
            fprintf(out, "\n# %s\n", why);
        }
    }
    arena_free(a);
}

/* --- code --- */

static void code_json(const struct plan *p, FILE *out, uint32_t role)
{
    const struct program *program = p->train[role];
    const struct sim_role *r = &p->timeline->roles[role];
    struct strbuf b = {0};
    fprintf(out, "{\"schema\": 1, \"target\": \"%s\", \"role\": %u, \"instructions\": [", job_target(p->job), role);
    for (uint32_t i = 0; i < program->ninsns; i++) {
        const struct insn *n = &program->insns[i];
        char *text = NULL;
        size_t size = 0;
        FILE *f = open_memstream(&text, &size);
        if (!f)
            break;
        program_print_insn(program, i, f);
        fclose(f);
        strbuf_clear(&b);
        strbuf_json_string(&b, text);
        free(text);
        fprintf(out, "%s\n  {\"seq\": %u, \"queue\": \"%s\", \"op\": \"%s\"", i ? "," : "", n->seq,
                isa_queue_name((enum queue)n->queue), isa_info(n->op)->name);
        if (n->action)
            fprintf(out, ", \"action\": \"%c\"", n->action);
        if (n->stage != UINT16_MAX)
            fprintf(out, ", \"stage\": %u", n->stage);
        if (n->microbatch != NONE)
            fprintf(out, ", \"microbatch\": %u", n->microbatch);
        if (n->layer != NONE)
            fprintf(out, ", \"layer\": %u", n->layer);
        fprintf(out, ", \"start_ns\": %lld, \"end_ns\": %lld, \"text\": %s}", (long long)r->insns[i].start_ns,
                (long long)r->insns[i].end_ns, b.text);
    }
    fprintf(out, "\n]}\n");
    strbuf_free(&b);
}

void show_code(const struct plan *p, FILE *out, const struct show_options *o)
{
    struct arena *a = arena_new();
    uint32_t role = NONE;
    const char *why;
    show_role(a, p, o, &role, &why);
    role = role == NONE ? 0 : role;
    if (o->json)
        code_json(p, out, role);
    else
        program_print(p->train[role], out);
    arena_free(a);
}
