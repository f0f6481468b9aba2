/* A measured trace against the plan's timeline.
 *
 * Every event of the trace names its rank (pid) and instruction (args.seq, with the queue and the row's name), and has
 * to agree with the plan's programs; its duration stands against that of the simulated interval.  Both are times from
 * ready to done: of communications they hold the wait for peers.  Where ranks share cores, both are the time that a
 * rank's process had one, as nobody can say when it has to wait for its turn.  Printed: the step, totals by row of the
 * instruction table, and the instructions that are off by most.  Ranks of a role are averaged. */

#include "compiler/inspect/diff.h"
#include "compiler/simulate/simulate.h"
#include "runtime/file.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORST = 12 };

struct row {                /* one instruction of one role */
    uint32_t role, insn, n; /* n: measured, by ranks */
    double measured_ns, planned_ns;
};
struct diff {
    const struct plan *p;
    struct row **rows; /* by role, by instruction */
    double start_us, end_us;
    uint32_t events;
    double core_ns, planned_core_ns; /* of all events */
    bool cores; /* the plan's ranks share cores, and the trace says how long each instruction had one */
    struct error *error;
};

static enum status refuse(const struct diff *d, const char *path, const char *why)
{
    return error_set(d->error, STATUS_INPUT, "%s: %s", path, why);
}

/* the instruction of a role by number and queue; instructions ascend by seq */
static uint32_t find_insn(const struct program *p, json_int_t seq, const char *queue)
{
    uint32_t low = 0, high = p->ninsns;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if ((json_int_t)p->insns[middle].seq < seq)
            low = middle + 1;
        else
            high = middle;
    }
    while (low < p->ninsns && (json_int_t)p->insns[low].seq == seq &&
           strcmp(isa_queue_name((enum queue)p->insns[low].queue), queue) != 0)
        low++;
    return low < p->ninsns && (json_int_t)p->insns[low].seq == seq ? low : NONE;
}

static enum status add_event(struct diff *d, const char *path, const json_t *event)
{
    const char *phase = json_string_value(json_object_get(event, "ph")),
               *name = json_string_value(json_object_get(event, "name"));
    const char *queue = json_string_value(json_object_get(event, "cat"));
    const json_t *pid = json_object_get(event, "pid"), *seq = json_object_get(json_object_get(event, "args"), "seq");
    double at = json_number_value(json_object_get(event, "ts")),
           length = json_number_value(json_object_get(event, "dur"));
    double core = json_number_value(json_object_get(event, "tdur"));
    if (!phase || strcmp(phase, "X") != 0 || (queue && (!strcmp(queue, "action") || !strcmp(queue, "idle"))))
        return STATUS_OK; /* of a predicted timeline: no instruction */
    if (!name || !queue || !json_is_integer(seq) || !json_is_integer(pid) || json_integer_value(pid) < 0 ||
        !isfinite(at) || !isfinite(length) || length < 0 || !isfinite(core) || core < 0)
        return refuse(d, path, "an event lacks its rank, queue, number or time");
    if (json_integer_value(pid) >= d->p->ranks->nranks)
        return refuse(d, path, "it has more ranks than the plan");
    uint32_t role = d->p->ranks->ranks[json_integer_value(pid)].role;
    const struct program *program = d->p->train[role];
    uint32_t i = find_insn(program, json_integer_value(seq), queue);
    const char *op = strrchr(name, ' ');
    if (i == NONE || strcmp(op ? op + 1 : name, isa_info(program->insns[i].op)->name) != 0)
        return refuse(d, path, "it is the trace of another plan");
    d->core_ns += core * 1e3;
    d->planned_core_ns += d->cores ? d->rows[role][i].planned_ns : 0;
    d->rows[role][i].measured_ns += (d->cores ? core : length) * 1e3;
    d->rows[role][i].n++;
    d->start_us = at < d->start_us ? at : d->start_us;
    d->end_us = at + length > d->end_us ? at + length : d->end_us;
    d->events++;
    return STATUS_OK;
}

static enum status read_events(struct diff *d, const char *path)
{
    json_error_t where;
    FILE *f;
    const char *why = file_read(path, &f);
    if (why)
        return refuse(d, path, why);
    json_t *root = json_loadf(f, 0, &where);
    fclose(f);
    const json_t *events = json_object_get(root, "traceEvents");
    enum status st = STATUS_OK;
    if (!json_is_array(events)) {
        json_decref(root);
        return refuse(d, path, root ? "it has no traceEvents" : where.text);
    }
    for (size_t i = 0; i < json_array_size(events) && st == STATUS_OK; i++)
        st = add_event(d, path, json_array_get(events, i));
    json_decref(root);
    return st != STATUS_OK || d->events ? st : refuse(d, path, "it has no instructions");
}

static double share(double measured, double planned)
{
    return planned > 0 ? 100 * (measured / planned - 1) : 0;
}

static int by_gap(const void *pa, const void *pb)
{
    const struct row *a = *(struct row *const *)pa, *b = *(struct row *const *)pb;
    double x = fabs(a->measured_ns - a->planned_ns), y = fabs(b->measured_ns - b->planned_ns);
    if (x != y)
        return x < y ? 1 : -1;
    if (a->role != b->role)
        return a->role < b->role ? -1 : 1;
    return a->insn < b->insn ? -1 : a->insn > b->insn;
}

static void print_rows(const struct diff *d, bool json, FILE *out)
{
    if (!json && d->cores)
        fputs("\nmilliseconds on cores of one rank of each stage", out);
    fputs(json ? ", \"rows\": [" : "\ninstructions       number    planned   measured\n", out);
    const char *comma = "";
    for (enum op op = 0; op < NOPS; op++) {
        double measured = 0, planned = 0;
        uint32_t n = 0;
        for (uint32_t role = 0; role < d->p->nroles; role++)
            for (uint32_t i = 0; i < d->p->train[role]->ninsns; i++) {
                const struct row *r = &d->rows[role][i];
                if (d->p->train[role]->insns[i].op != op || !r->n)
                    continue;
                measured += r->measured_ns;
                planned += r->planned_ns;
                n++;
            }
        if (n && json)
            fprintf(out, "%s{\"op\": \"%s\", \"instructions\": %u, \"planned_s\": %.9g, \"measured_s\": %.9g}", comma,
                    isa_info(op)->name, n, planned * 1e-9, measured * 1e-9);
        else if (n)
            fprintf(out, "%-18s %6u %7.3f ms %7.3f ms  %+.1f %%\n", isa_info(op)->name, n, planned * 1e-6,
                    measured * 1e-6, share(measured, planned));
        comma = n ? ", " : comma;
    }
    fputs(json ? "]" : "", out);
}

static void print_worst(struct arena *a, const struct diff *d, bool json, FILE *out)
{
    size_t n = 0, room = 0;
    for (uint32_t role = 0; role < d->p->nroles; role++)
        room += d->p->train[role]->ninsns;
    struct row **list = ARENA_ARRAY(a, struct row *, room + 1);
    for (uint32_t role = 0; role < d->p->nroles; role++)
        for (uint32_t i = 0; i < d->p->train[role]->ninsns; i++)
            if (d->rows[role][i].n)
                list[n++] = &d->rows[role][i];
    qsort(list, n, sizeof *list, by_gap);
    n = json || n < WORST ? n : WORST; /* JSON has them all */
    fputs(json ? ", \"instructions\": [" : "\nfarthest off\n", out);
    for (size_t k = 0; k < n; k++) {
        const struct row *r = list[k];
        if (json) {
            fprintf(out, "%s{\"role\": %u, \"instruction\": %u, \"planned_ns\": %.0f, \"measured_ns\": %.0f}",
                    k ? ", " : "", r->role, r->insn, r->planned_ns, r->measured_ns);
            continue;
        }
        fprintf(out, "%9.1f us instead of %.1f us: role %u: ", r->measured_ns * 1e-3, r->planned_ns * 1e-3, r->role);
        program_print_insn(d->p->train[r->role], r->insn, out);
        fputc('\n', out);
    }
    fputs(json ? "]" : "", out);
}

/* seconds of the step, and on cores where ranks share them */
static void print_step(const struct diff *d, double planned_s, double measured_s, bool json, FILE *out)
{
    double planned_core_s = d->planned_core_ns * 1e-9, measured_core_s = d->core_ns * 1e-9;
    if (json) {
        fprintf(out, "{\"schema\": 1, \"planned_step_s\": %.9g, \"measured_step_s\": %.9g", planned_s, measured_s);
        if (d->cores)
            fprintf(out, ", \"planned_core_s\": %.9g, \"measured_core_s\": %.9g", planned_core_s, measured_core_s);
        return;
    }
    fprintf(out, "step: planned %.6g s, measured %.6g s (%+.1f %%), %u instructions\n", planned_s, measured_s,
            share(measured_s, planned_s), d->events);
    if (d->cores)
        fprintf(out, "cores: planned %.6g s, measured %.6g s of all ranks together (%+.1f %%)\n", planned_core_s,
                measured_core_s, share(measured_core_s, planned_core_s));
}

enum status diff_trace(struct arena *a, const struct plan *p, const char *path, bool json, FILE *out,
                       struct error *error)
{
    struct diff d = {
        .p = p, .cores = p->timeline->roles[0].core_ns, .start_us = INFINITY, .end_us = -INFINITY, .error = error};
    d.rows = ARENA_ARRAY(a, struct row *, p->nroles);
    for (uint32_t role = 0; role < p->nroles; role++) {
        d.rows[role] = ARENA_ARRAY(a, struct row, p->train[role]->ninsns + (size_t)1);
        for (uint32_t i = 0; i < p->train[role]->ninsns; i++) {
            const struct sim_interval *s = &p->timeline->roles[role].insns[i];
            int64_t planned_ns = d.cores ? p->timeline->roles[role].core_ns[i] : s->end_ns - s->start_ns;
            d.rows[role][i] = (struct row){role, i, 0, 0, (double)planned_ns};
        }
    }
    TRY(read_events(&d, path));
    if (d.cores && d.core_ns <= 0)
        return refuse(&d, path, "it does not say how long each instruction had a core ('llmrun --trace' does)");
    for (uint32_t role = 0; role < p->nroles; role++)
        for (uint32_t i = 0; i < p->train[role]->ninsns; i++)
            d.rows[role][i].measured_ns /= d.rows[role][i].n ? d.rows[role][i].n : 1;
    double measured_s = (d.end_us - d.start_us) * 1e-6, planned_s = (double)p->timeline->step_ns * 1e-9;
    print_step(&d, planned_s, measured_s, json, out);
    print_rows(&d, json, out);
    print_worst(a, &d, json, out);
    fputs(json ? "}\n" : "", out);
    return STATUS_OK;
}
