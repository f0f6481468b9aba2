/* The simulated step as a trace: what happened on which rank and thread, in the order of a file; trace_json.c and
 * trace_perfetto.c write it.
 *
 * All members of a role take the same times, so a rank's events are its role's with its own peers.  The k-th send to
 * a peer meets the k-th receive from this rank; both ends of an arrow get the same number, made from the two ranks and
 * k, so that no table of pairs is kept.  Output grows with ranks times instructions. */

#include "compiler/inspect/trace.h"

#include "compiler/inspect/show.h"
#include "compiler/inspect/trace_form.h"
#include "compiler/inspect/traffic.h"
#include "compiler/support/vec.h"

#include <stdlib.h>

#define ACTIONS_THREAD 0u /* queue q is thread q + 1 */
#define IDLE_THREAD (NQUEUES + 1u)

struct writer {
    const struct plan *p;
    const struct trace_form *form;
    struct trace_out out;
    struct arena *arena;
    const uint32_t *ranks;
    uint32_t nranks;
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

static void add_number(struct trace_slice *s, const char *key, uint64_t number)
{
    s->args[s->nargs++] = (struct trace_arg){.key = key, .kind = TRACE_NUMBER, .number = number};
}

static void add_text(struct trace_slice *s, const char *key, const char *text)
{
    s->args[s->nargs++] = (struct trace_arg){.key = key, .kind = TRACE_TEXT, .text = text};
}

static void write_process(struct writer *w, uint32_t rank, uint32_t role)
{
    const struct mesh *m = &w->p->mesh;
    const char *name = arena_printf(w->arena, "rank %u: pp %u, tp %u, cp %u, dp %u", rank, role,
                                    mesh_number(m, rank, m->dim[MESH_TP]), mesh_number(m, rank, m->dim[MESH_CP]),
                                    mesh_number(m, rank, m->dim[MESH_DP]));
    w->form->process(&w->out, rank, name, arena_printf(w->arena, "layers %s", show_layers(w->arena, w->p, role)));
}

static void write_actions(struct writer *w, uint32_t rank, uint32_t role)
{
    uint32_t n;
    const struct show_block *b = show_blocks(w->arena, w->p->train[role], &w->p->timeline->roles[role], &n);
    w->form->thread(&w->out, rank, ACTIONS_THREAD, "actions");
    for (uint32_t i = 0; i < n; i++) {
        struct trace_slice s = {.category = "action",
                                .name = show_block_name(w->arena, &b[i]),
                                .rank = rank,
                                .thread = ACTIONS_THREAD,
                                .start_ns = b[i].start_ns,
                                .end_ns = b[i].end_ns};
        if (b[i].other || b[i].stage != NONE)
            add_number(&s, "stage", b[i].stage);
        if (b[i].other)
            add_number(&s, "other_stage", b[i].other_stage);
        w->form->slice(&w->out, &s);
    }
}

/* Idle time of the compute queue by its cause, and what it waited for. */
static void write_idles(struct writer *w, uint32_t rank, uint32_t role)
{
    const struct program *p = w->p->train[role];
    const struct sim_role *r = &w->p->timeline->roles[role];
    if (r->nidles)
        w->form->thread(&w->out, rank, IDLE_THREAD, "idle");
    for (uint32_t i = 0; i < r->nidles; i++) {
        const struct sim_idle *d = &r->idles[i];
        struct trace_slice s = {.category = "idle",
                                .name = idle_names[d->cause],
                                .rank = rank,
                                .thread = IDLE_THREAD,
                                .start_ns = d->start_ns,
                                .end_ns = d->end_ns};
        add_number(&s, "because_of_role", d->who);
        if (d->on != NONE) {
            add_text(&s, "waited_for", isa_info(p->insns[d->on].op)->name);
            add_number(&s, "waited_for_seq", p->insns[d->on].seq);
        }
        w->form->slice(&w->out, &s);
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
    w->form->counter(&w->out, rank);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t change = points[i].bytes > told ? points[i].bytes - told : told - points[i].bytes;
        if (i && i + 1 < n && change < least && points[i].bytes != r->peak_live_bytes)
            continue;
        told = points[i].bytes;
        w->form->count(&w->out, rank, points[i].at_ns, told);
    }
}

/* what an instruction moves, with whom, over which level of the cluster, and how fast */
static void add_transfer(struct writer *w, uint32_t role, uint32_t i, struct trace_slice *s)
{
    struct transfer t;
    if (!transfer_of(w->p, role, i, &t))
        return;
    add_number(s, "bytes", t.bytes);
    add_text(s, "group", transfer_group(w->arena, w->p, &t, role));
    add_number(s, "members", t.members);
    add_text(s, "tier", transfer_tier(w->p, &t));
    if (s->end_ns > s->start_ns)
        s->args[s->nargs++] = (struct trace_arg){
            .key = "bytes_s", .kind = TRACE_REAL, .real = 1e9 * (double)t.bytes / (double)(s->end_ns - s->start_ns)};
}

static struct trace_slice insn_slice(struct writer *w, uint32_t rank, uint32_t role, uint32_t i)
{
    const struct sim_interval *x = &w->p->timeline->roles[role].insns[i];
    const struct insn *n = &w->p->train[role]->insns[i];
    const char *op = isa_info(n->op)->name;
    struct trace_slice s = {.category = isa_queue_name((enum queue)n->queue),
                            .name = op,
                            .rank = rank,
                            .thread = n->queue + 1u,
                            .start_ns = x->start_ns,
                            .end_ns = x->end_ns};
    if (n->action && n->microbatch != NONE)
        s.name = arena_printf(w->arena, "%c%u %s", n->action, n->microbatch, op);
    else if (n->action)
        s.name = arena_printf(w->arena, "%c %s", n->action, op);
    add_number(&s, "seq", n->seq);
    if (n->layer != NONE)
        add_number(&s, "layer", n->layer);
    if (n->stage != UINT16_MAX)
        add_number(&s, "stage", n->stage);
    if (n->line)
        add_number(&s, "line", n->line);
    add_transfer(w, role, i, &s);
    return s;
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
static void add_flow(struct writer *w, struct trace_slice *s, uint32_t peer, const struct insn *n, uint64_t number)
{
    bool sends = n->op == OP_SEND;
    uint64_t world = w->p->mesh.nranks, source = sends ? s->rank : peer, target = sends ? peer : s->rank;
    s->flow = sends ? FLOW_BEGINS : FLOW_ENDS;
    s->flow_name = n->action == 'F' ? "activations" : "gradients";
    s->flow_id = (number * world + source) * world + target;
}

static void write_queue(struct writer *w, uint32_t rank, uint32_t role, enum queue q)
{
    const struct program *p = w->p->train[role];
    uint64_t *sent = ARENA_ARRAY(w->arena, uint64_t, 2 * (size_t)w->p->nroles), *received = sent + w->p->nroles;
    bool named = false;
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *n = &p->insns[i];
        if (n->queue != q)
            continue;
        if (!named)
            w->form->thread(&w->out, rank, q + 1u, isa_queue_name(q));
        named = true;
        struct arena_mark mark = arena_mark(w->arena);
        struct trace_slice s = insn_slice(w, rank, role, i);
        uint32_t peer = peer_of(w->p, rank, p, n), peer_role = peer == NONE ? 0 : w->p->ranks->ranks[peer].role;
        uint64_t number = peer == NONE ? 0 : n->op == OP_SEND ? sent[peer_role]++ : received[peer_role]++;
        if (peer != NONE && is_selected(w, peer))
            add_flow(w, &s, peer, n, number);
        w->form->slice(&w->out, &s);
        arena_reset(w->arena, mark);
    }
}

static int ascending(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return (a > b) - (a < b);
}

void trace_write(const struct plan *p, const uint32_t *ranks, uint32_t nranks, bool perfetto, FILE *out)
{
    struct writer w = {.p = p,
                       .form = perfetto ? &trace_perfetto : &trace_json,
                       .out.stream = out,
                       .arena = arena_new(),
                       .ranks = ranks,
                       .nranks = nranks};
    w.out.arena = w.arena;
    if (!ranks) {
        uint32_t *first = ARENA_ARRAY(w.arena, uint32_t, p->nroles);
        for (uint32_t r = 0; r < p->nroles; r++)
            first[r] = show_first_rank(p, r);
        qsort(first, p->nroles, sizeof *first, ascending);
        w.ranks = first;
        w.nranks = p->nroles;
    }
    w.form->begin(&w.out);
    for (uint32_t i = 0; i < w.nranks; i++) {
        struct arena_mark mark = arena_mark(w.arena);
        uint32_t role = p->ranks->ranks[w.ranks[i]].role;
        write_process(&w, w.ranks[i], role);
        write_actions(&w, w.ranks[i], role);
        write_idles(&w, w.ranks[i], role);
        write_memory(&w, w.ranks[i], role);
        for (int q = 0; q < NQUEUES; q++)
            if (q != QUEUE_RECV)
                write_queue(&w, w.ranks[i], role, (enum queue)q);
        arena_reset(w.arena, mark);
    }
    /* Both ends of an arrow are at the same time, and Perfetto wants to have read its beginning before its end. */
    for (uint32_t i = 0; i < w.nranks; i++) {
        struct arena_mark mark = arena_mark(w.arena);
        write_queue(&w, w.ranks[i], p->ranks->ranks[w.ranks[i]].role, QUEUE_RECV);
        arena_reset(w.arena, mark);
    }
    w.form->end(&w.out, p, w.ranks, w.nranks);
    strbuf_free(&w.out.text);
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
