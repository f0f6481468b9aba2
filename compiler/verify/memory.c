/* Property 6, memory: the arena fits the device, every buffer lies in it, persistent state shares bytes
 * with nothing, and there is room for what a GPU's kernels use besides operands.
 *
 * That buffers of a step share bytes only over time is property 4.  Live ranges need no look: placement gave
 * every buffer fixed bytes, so the peak is the arena.  Cost: sorting the buffers, and the slots of rings that lie
 * apart. */

#include "compiler/verify/prove.h"

#include <stdlib.h>

struct held {
    uint64_t start, end;
    uint32_t buffer;
    bool persistent;
};

static int by_start(const void *x, const void *y)
{
    const struct held *a = x, *b = y;
    return a->start != b->start ? (a->start < b->start ? -1 : 1) : (a->buffer > b->buffer) - (a->buffer < b->buffer);
}

/* A buffer lies in one piece, but for a scattered ring, which is as many as it has slots. */
static uint32_t parts_of(const struct program *q, const struct buffer *b)
{
    return b->scattered ? q->rings[b->ring].depth : 1;
}

static uint64_t part_bytes(const struct buffer *b)
{
    return b->scattered ? b->stride : b->bytes;
}

/* The arena of another stack's plan is a model's: what that stack needs is a figure of its own. */
static void check_limits(struct arena *a, const struct plan *p, const struct program *q, struct site at,
                         struct verdict *v)
{
    const struct topo_gpu *gpu = &p->topo->types[p->decision.type].gpu;
    struct job unbounded = *p->job;
    unbounded.wishes.memory = 0;
    uint64_t limit = decision_gpu_bytes(&unbounded, gpu);
    /* the evaluation's arena begins behind the training's host memory */
    uint64_t host = program_host_bytes(at.role < p->nroles ? p->train[at.role] : q);
    uint64_t device = q->arena_bytes > host && !job_is_modelled(p->job) ? q->arena_bytes - host : 0;
    if (device > limit)
        prove_report(a, p, v, at, "its arena of %llu bytes does not fit the %llu bytes that a %s leaves",
                     (unsigned long long)device, (unsigned long long)limit, gpu->model);
    if (p->job->wishes.memory && device > p->job->wishes.memory)
        prove_report(a, p, v, at, "its arena of %llu bytes is larger than the %llu bytes asked for",
                     (unsigned long long)device, (unsigned long long)p->job->wishes.memory);
    for (uint32_t i = 0; i < q->nbuffers; i++) {
        const struct buffer *b = &q->buffers[i];
        for (uint32_t k = 0; k < parts_of(q, b); k++) {
            uint64_t start = program_slot_offset(q, b, k), bytes = part_bytes(b);
            if (!b->host && start < host)
                prove_report(a, p, v, at, "buffer %s lies in host memory", b->name);
            if (start > q->arena_bytes || bytes > q->arena_bytes - start)
                prove_report(a, p, v, at, "buffer %s ends %llu bytes behind the arena's end", b->name,
                             (unsigned long long)(start + bytes - q->arena_bytes));
        }
    }
}

/* A persistent buffer overlaps another one if it overlaps the one of the two kinds that reaches furthest so
 * far. */
static void check_persistent(struct arena *a, const struct plan *p, const struct program *q, struct site at,
                             struct verdict *v)
{
    struct arena *scratch = arena_new();
    struct held *held = ARENA_ARRAY(scratch, struct held, (size_t)q->nbuffers + q->nplaces + 1);
    size_t n = 0;
    for (uint32_t i = 0; i < q->nbuffers; i++) {
        const struct buffer *b = &q->buffers[i];
        for (uint32_t k = 0; k < parts_of(q, b); k++, n++) {
            uint64_t start = program_slot_offset(q, b, k);
            held[n] = (struct held){start, start + part_bytes(b), i, b->kind != BUFFER_STEP};
        }
    }
    qsort(held, n, sizeof *held, by_start);
    const struct held *any = NULL, *kept = NULL;
    for (size_t i = 0; i < n; i++) {
        const struct held *h = &held[i], *other = h->persistent ? any : kept;
        if (other && other->end > h->start)
            prove_report(a, p, v, at, "buffers %s and %s share bytes, and %s outlives the step",
                         q->buffers[other->buffer].name, q->buffers[h->buffer].name,
                         q->buffers[h->persistent ? h->buffer : other->buffer].name);
        if (!any || h->end > any->end)
            any = h;
        if (h->persistent && (!kept || h->end > kept->end))
            kept = h;
    }
    arena_free(scratch);
}

static void check_workspace(struct arena *a, const struct plan *p, const struct program *q, struct site at,
                            struct verdict *v)
{
    uint64_t need = program_workspace_bytes(q, p->topo->types[p->decision.type].gpu.sm), placed = 0;
    for (uint32_t i = 0; i < q->nbuffers; i++)
        placed += q->buffers[i].kind == BUFFER_WORKSPACE ? q->buffers[i].bytes : 0;
    if (placed < need)
        prove_report(a, p, v, at, "its kernels use a workspace of %llu bytes, of which %llu are placed",
                     (unsigned long long)need, (unsigned long long)placed);
}

/* every persistent buffer of x stands in y too, at the same place */
static void check_kept(struct arena *a, const struct plan *p, const struct program *x, const struct program *y,
                       struct verdict *v)
{
    struct site at = {6, x->role, NONE, x->evaluation, NONE};
    for (uint32_t i = 0, k = 0; i < x->nbuffers; i++) {
        const struct buffer *b = &x->buffers[i];
        uint32_t tried = 0;
        bool found = b->kind == BUFFER_STEP;
        for (; tried < y->nbuffers && !found; tried++, k = (k + 1) % y->nbuffers) { /* usually the next one */
            const struct buffer *c = &y->buffers[k];
            found = c->kind == b->kind && c->offset == b->offset && c->bytes == b->bytes && c->host == b->host &&
                    c->bucket == b->bucket && c->shard_slot == b->shard_slot; /* so dtype is the same too */
        }
        if (!found)
            prove_report(a, p, v, at, "buffer %s is not where the %s program keeps it", b->name,
                         x->evaluation ? "training" : "evaluation");
    }
}

/* Both programs of a rank find the same state at the same place, and neither uses the other's state for
 * anything else: as each has all of it, that is the check above. */
static void check_shared(struct arena *a, const struct plan *p, uint32_t role, struct verdict *v)
{
    const struct program *t = prove_program(p, role, PROGRAM_TRAIN), *e = prove_program(p, role, PROGRAM_EVAL);
    if (e) {
        check_kept(a, p, t, e, v);
        check_kept(a, p, e, t, v);
    }
}

void verify_memory(struct arena *a, const struct plan *p, struct verdict *v)
{
    for (uint32_t role = 0; role < p->nroles; role++) {
        for (int kind = 0; kind < NPROGRAM_KINDS; kind++) {
            const struct program *q = prove_program(p, role, kind);
            struct site at = {6, role, NONE, kind == PROGRAM_EVAL, NONE};
            if (!q)
                continue;
            check_limits(a, p, q, at, v);
            check_persistent(a, p, q, at, v);
            check_workspace(a, p, q, at, v);
        }
        check_shared(a, p, role, v);
    }
}
