/* The simulated step in Chrome's trace event format ("JSON Array Format" with metadata, as read by Perfetto's
 * importer and by chrome://tracing).
 *
 * Every event is one line.  All members of a role take the same times, so a rank's events are its role's with
 * its own peers.  The k-th send to a peer meets the k-th receive from this rank; both ends of an arrow get
 * the same id, made from the two ranks and k, so that no table of pairs is kept.  Output grows with ranks
 * times instructions: about 250 bytes each. */

#include "compiler/inspect/trace.h"
#include "compiler/inspect/show.h"
#include "compiler/inspect/traffic.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/vec.h"

#include <stdlib.h>

#define ACTIONS_THREAD 0u /* queue q is thread q + 1 */
#define IDLE_THREAD (NQUEUES + 1u)

struct writer {
    const struct plan *p;
    FILE *out;
    struct arena *arena;
    const uint32_t *ranks;
    uint32_t nranks;
    const char *comma;
    struct strbuf text; /* reused */
};

static bool is_selected(const struct writer *w, uint32_t rank)
{
    uint32_t low = 0, high = w->nranks;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (w->ranks[middle] < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low < w->nranks && w->ranks[low] == rank;
}

static void begin_event(struct writer *w)
{
    fprintf(w->out, "%s\n", w->comma);
    w->comma = ",";
}

/* microseconds with the nanoseconds as decimals */
static void print_time(FILE *out, const char *key, int64_t ns)
{
    fprintf(out, ",\"%s\":%lld.%03lld", key, (long long)(ns / 1000), (long long)(ns % 1000));
}

static void name_process(struct writer *w, uint32_t rank, uint32_t role)
{
    const struct mesh *m = &w->p->mesh;
    begin_event(w);
    fprintf(w->out,
            "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%u,\"args\":{\"name\":\"rank %u: pp %u, tp %u, "
            "cp %u, dp %u\"}}",
            rank, rank, role, mesh_number(m, rank, m->dim[MESH_TP]), mesh_number(m, rank, m->dim[MESH_CP]),
            mesh_number(m, rank, m->dim[MESH_DP]));
    begin_event(w);
    fprintf(w->out, "{\"ph\":\"M\",\"name\":\"process_labels\",\"pid\":%u,\"args\":{\"labels\":\"layers %s\"}}", rank,
            show_layers(w->arena, w->p, role));
    begin_event(w);
    fprintf(w->out, "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%u,\"args\":{\"sort_index\":%u}}", rank,
            rank);
}

static void name_thread(struct writer *w, uint32_t rank, uint32_t thread, const char *name)
{
    begin_event(w);
    fprintf(w->out, "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%u,\"tid\":%u,\"args\":{\"name\":\"%s\"}}", rank,
            thread, name);
    begin_event(w);
    fprintf(w->out, "{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":%u,\"tid\":%u,\"args\":{\"sort_index\":%u}}",
            rank, thread, thread);
}

static void write_actions(struct writer *w, uint32_t rank, uint32_t role)
{
    uint32_t n;
    const struct show_block *b = show_blocks(w->arena, w->p->train[role], &w->p->timeline->roles[role], &n);
    name_thread(w, rank, ACTIONS_THREAD, "actions");
    for (uint32_t i = 0; i < n; i++) {
        begin_event(w);
        fprintf(w->out, "{\"ph\":\"X\",\"cat\":\"action\",\"name\":\"%s\",\"pid\":%u,\"tid\":%u",
                show_block_name(w->arena, &b[i]), rank, ACTIONS_THREAD);
        print_time(w->out, "ts", b[i].start_ns);
        print_time(w->out, "dur", b[i].end_ns - b[i].start_ns);
        if (b[i].other)
            fprintf(w->out, ",\"args\":{\"stage\":%u,\"other_stage\":%u}", b[i].stage, b[i].other_stage);
        else if (b[i].stage != NONE)
            fprintf(w->out, ",\"args\":{\"stage\":%u}", b[i].stage);
        fputc('}', w->out);
    }
}

/* Idle time of the compute queue by its cause, and what it waited for. */
static void write_idles(struct writer *w, uint32_t rank, uint32_t role)
{
    const struct program *p = w->p->train[role];
    const struct sim_role *r = &w->p->timeline->roles[role];
    if (r->nidles)
        name_thread(w, rank, IDLE_THREAD, "idle");
    for (uint32_t i = 0; i < r->nidles; i++) {
        const struct sim_idle *d = &r->idles[i];
        begin_event(w);
        fprintf(w->out, "{\"ph\":\"X\",\"cat\":\"idle\",\"name\":\"%s\",\"pid\":%u,\"tid\":%u", idle_names[d->cause],
                rank, IDLE_THREAD);
        print_time(w->out, "ts", d->start_ns);
        print_time(w->out, "dur", d->end_ns - d->start_ns);
        fprintf(w->out, ",\"args\":{\"because_of_role\":%u", d->who);
        if (d->on != NONE)
            fprintf(w->out, ",\"waited_for\":\"%s\",\"waited_for_seq\":%u", isa_info(p->insns[d->on].op)->name,
                    p->insns[d->on].seq);
        fputs("}}", w->out);
    }
}

enum { MEMORY_STEPS = 1000 }; /* a change of live bytes is written from a thousandth of the arena on */

static void write_memory(struct writer *w, uint32_t rank, uint32_t role)
{
    const struct program *p = w->p->train[role];
    const struct sim_role *r = &w->p->timeline->roles[role];
    uint32_t n;
    uint64_t told = UINT64_MAX, least = p->arena_bytes / MEMORY_STEPS;
    const struct live_point *points = simulate_memory(w->arena, p, r, &n);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t change = points[i].bytes > told ? points[i].bytes - told : told - points[i].bytes;
        if (i && i + 1 < n && change < least && points[i].bytes != r->peak_live_bytes)
            continue;
        told = points[i].bytes;
        begin_event(w);
        fprintf(w->out, "{\"ph\":\"C\",\"name\":\"live bytes\",\"pid\":%u", rank);
        print_time(w->out, "ts", points[i].at_ns);
        fprintf(w->out, ",\"args\":{\"bytes\":%llu}}", (unsigned long long)told);
    }
}

/* what an instruction moves, with whom, over which level of the cluster, and how fast */
static void write_transfer(struct writer *w, uint32_t role, uint32_t i)
{
    struct transfer t;
    if (!transfer_of(w->p, role, i, &t))
        return;
    struct arena_mark mark = arena_mark(w->arena);
    const struct sim_interval *s = &w->p->timeline->roles[role].insns[i];
    strbuf_clear(&w->text);
    strbuf_json(&w->text, ",'bytes':%lu,'group':%s,'members':%u,'tier':%s", t.bytes,
                transfer_group(w->arena, w->p, &t, role), t.members, transfer_tier(w->p, &t));
    if (s->end_ns > s->start_ns)
        strbuf_json(&w->text, ",'bytes_s':%g", 1e9 * (double)t.bytes / (double)(s->end_ns - s->start_ns));
    fputs(w->text.text, w->out);
    arena_reset(w->arena, mark);
}

static void write_insn(struct writer *w, uint32_t rank, uint32_t role, uint32_t i)
{
    const struct program *p = w->p->train[role];
    const struct sim_role *r = &w->p->timeline->roles[role];
    const struct insn *n = &p->insns[i];
    const char *op = isa_info(n->op)->name;
    begin_event(w);
    fprintf(w->out, "{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"", isa_queue_name((enum queue)n->queue));
    if (n->action && n->microbatch != NONE)
        fprintf(w->out, "%c%u %s\"", n->action, n->microbatch, op);
    else if (n->action)
        fprintf(w->out, "%c %s\"", n->action, op);
    else
        fprintf(w->out, "%s\"", op);
    fprintf(w->out, ",\"pid\":%u,\"tid\":%u", rank, n->queue + 1u);
    print_time(w->out, "ts", r->insns[i].start_ns);
    print_time(w->out, "dur", r->insns[i].end_ns - r->insns[i].start_ns);
    fprintf(w->out, ",\"args\":{\"seq\":%u", n->seq);
    if (n->layer != NONE)
        fprintf(w->out, ",\"layer\":%u", n->layer);
    if (n->stage != UINT16_MAX)
        fprintf(w->out, ",\"stage\":%u", n->stage);
    if (n->line)
        fprintf(w->out, ",\"line\":%u", n->line);
    write_transfer(w, role, i);
    fputs("}}", w->out);
}

/* The rank at the other end of a SEND or RECV, or NONE. */
static uint32_t peer_of(const struct plan *p, uint32_t rank, const struct program *program, const struct insn *n)
{
    const struct isa_info *info = isa_info(n->op);
    for (uint32_t k = 0; k < info->nattrs; k++) {
        uint32_t slot = program->attrs[n->attr + k].slot;
        if (info->attr[k].kind != ATTR_PEER || slot >= program->nslots)
            continue;
        uint32_t coord[NDIGITS];
        mesh_coords(&p->mesh, rank, coord);
        coord[AXIS_PP] = program->slots[slot].arg;
        return mesh_rank(&p->mesh, coord);
    }
    return NONE;
}

/* number: of this transfer on its channel, from 0 */
static void write_flow(struct writer *w, uint32_t rank, uint32_t peer, bool sends, uint64_t number,
                       const struct insn *n, int64_t at_ns)
{
    uint64_t world = w->p->mesh.nranks, source = sends ? rank : peer, target = sends ? peer : rank;
    begin_event(w);
    fprintf(w->out, "{\"ph\":\"%s\",\"cat\":\"transfer\",\"name\":\"%s\",\"id\":%llu,\"pid\":%u,\"tid\":%u",
            sends ? "s" : "f\",\"bp\":\"e", n->action == 'F' ? "activations" : "gradients",
            (unsigned long long)((number * world + source) * world + target), rank, n->queue + 1u);
    print_time(w->out, "ts", at_ns);
    fputc('}', w->out);
}

static void write_queue(struct writer *w, uint32_t rank, uint32_t role, enum queue q)
{
    const struct program *p = w->p->train[role];
    const struct sim_role *r = &w->p->timeline->roles[role];
    uint64_t *sent = ARENA_ARRAY(w->arena, uint64_t, 2 * (size_t)w->p->nroles), *received = sent + w->p->nroles;
    bool named = false;
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *n = &p->insns[i];
        if (n->queue != q)
            continue;
        if (!named)
            name_thread(w, rank, q + 1u, isa_queue_name(q));
        named = true;
        write_insn(w, rank, role, i);
        uint32_t peer = peer_of(w->p, rank, p, n);
        if (peer == NONE)
            continue;
        bool sends = n->op == OP_SEND;
        uint32_t peer_role = w->p->ranks->ranks[peer].role;
        uint64_t number = sends ? sent[peer_role]++ : received[peer_role]++;
        if (is_selected(w, peer))
            write_flow(w, rank, peer, sends, number, n, r->insns[i].start_ns);
    }
}

static void write_tail(struct writer *w)
{
    const struct predicted f = plan_predicted(w->p);
    struct strbuf *b = &w->text;
    strbuf_clear(b);
    strbuf_text(b, "\n],\n\"displayTimeUnit\":\"ms\",\n");
    if (w->nranks == 1)
        strbuf_printf(b, "\"distributedInfo\":{\"rank\":%u,\"world_size\":%u},\n", w->ranks[0], w->p->mesh.nranks);
    strbuf_json(b,
                "'otherData':{'producer':'llmc','simulated':true,'model':%s,'step_time_s':%g,'bubble_fraction':%g,"
                "'exposed_comm_fraction':%g,'peak_memory_bytes':%lu,'peak_memory_rank':%u}}\n",
                w->p->job->model.name, f.step_time_s, f.bubble_fraction, f.exposed_comm_fraction, f.peak_memory_bytes,
                f.peak_memory_rank);
    fputs(b->text, w->out);
}

static int ascending(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return (a > b) - (a < b);
}

void trace_write(const struct plan *p, const uint32_t *ranks, uint32_t nranks, FILE *out)
{
    struct writer w = {.p = p, .out = out, .arena = arena_new(), .ranks = ranks, .nranks = nranks, .comma = ""};
    if (!ranks) {
        uint32_t *first = ARENA_ARRAY(w.arena, uint32_t, p->nroles);
        for (uint32_t r = 0; r < p->nroles; r++)
            first[r] = show_first_rank(p, r);
        qsort(first, p->nroles, sizeof *first, ascending);
        w.ranks = first;
        w.nranks = p->nroles;
    }
    fputs("{\"traceEvents\":[", out);
    for (uint32_t i = 0; i < w.nranks; i++) {
        struct arena_mark mark = arena_mark(w.arena);
        uint32_t role = p->ranks->ranks[w.ranks[i]].role;
        name_process(&w, w.ranks[i], role);
        write_actions(&w, w.ranks[i], role);
        write_idles(&w, w.ranks[i], role);
        write_memory(&w, w.ranks[i], role);
        for (int q = 0; q < NQUEUES; q++)
            write_queue(&w, w.ranks[i], role, (enum queue)q);
        arena_reset(w.arena, mark);
    }
    write_tail(&w);
    strbuf_free(&w.text);
    arena_free(w.arena);
}

/* --- rank lists --- */

static bool read_rank(const char **s, uint32_t world, uint32_t *rank)
{
    uint64_t v = 0;
    const char *start = *s;
    while (**s >= '0' && **s <= '9' && v < world)
        v = v * 10 + (uint64_t)(*(*s)++ - '0');
    *rank = (uint32_t)v;
    return *s > start && v < world;
}

bool trace_parse_ranks(struct arena *a, const char *text, uint32_t world, uint32_t **ranks, uint32_t *nranks,
                       const char **why)
{
    bool *chosen = ARENA_ARRAY(a, bool, world);
    bool all = text[0] == 'a' && text[1] == 'l' && text[2] == 'l' && text[3] == 0;
    const char *s = text;
    while (!all) {
        uint32_t first = 0, last;
        bool ok = read_rank(&s, world, &first);
        last = first;
        if (ok && *s == '-') {
            s++;
            ok = read_rank(&s, world, &last) && last >= first;
        }
        if (!ok || (*s && *s != ',')) {
            *why = arena_printf(a, "'%s' is not a list of ranks such as 0,8-15 or all, with ranks from 0 to %u", text,
                                world - 1);
            return false;
        }
        for (uint32_t r = first; r <= last; r++)
            chosen[r] = true;
        if (!*s++)
            break;
    }
    *nranks = 0;
    *ranks = ARENA_ARRAY(a, uint32_t, world);
    for (uint32_t r = 0; r < world; r++) {
        if (all || chosen[r])
            (*ranks)[(*nranks)++] = r;
    }
    return true;
}

void trace_times(const struct plan *p, FILE *out)
{
    fprintf(out, "llmc-times 1 %u %lld\n", p->nroles, (long long)p->timeline->step_ns);
    for (uint32_t r = 0; r < p->nroles; r++) {
        const struct sim_role *role = &p->timeline->roles[r];
        fprintf(out, "%u\n", role->ninsns);
        for (uint32_t i = 0; i < role->ninsns; i++)
            fprintf(out, "%lld%c", (long long)(role->insns[i].end_ns - role->insns[i].start_ns),
                    i % 16 == 15 || i + 1 == role->ninsns ? '\n' : ' ');
    }
}
