/* Placement: arenas close to what must be live, slots of rings where they fit, and rings in one piece where that is as good.
 *
 * Plans are drawn (random_layout.h); whether bytes are shared only over time is the verifier's to say. */

#include "compiler/place/place_private.h"
#include "compiler/model/sema.h"
#include "compiler/support/vec.h"
#include "compiler/topology/topo.h"
#include "tests/compiler/random_plan.h"
#include "tests/draws.h"
#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>

void suite_place(void);

static uint64_t device_bytes(const struct program *p)
{
    return p->arena_bytes - program_host_bytes(p);
}

/* the first decision that the search finds, lowered and placed, and verified; NULL: there is none */
static struct plan *plan_of(struct arena *a, const char *model, const char *cluster, const char **sets, uint32_t nsets)
{
    struct diag *d = diag_new(a);
    struct job *job = job_read(a, d, model, sets, nsets);
    struct topo *topo = topo_read(a, d, cluster);
    const char *why = "";
    CU_ASSERT_FATAL(job && topo);
    struct search_result *r = search(a, d, job, topo, 1, 20000, true);
    if (!r->ncandidates)
        return NULL;
    return compile_decision(a, job, topo, &r->candidates[0].decision, &(struct compile_options){0}, &why);
}

struct known {
    const char *model, *cluster, *sets[7];
    double most; /* arena over what the predicted step has live, of the fullest role */
    bool scattered;
};

/* Schedules whose rings are not full at the same time: the arenas of most of them were 1.2 to 2.5 times the live peak with
 * rings in one piece and slots in turns. */
static void test_known(void)
{
    static const struct known all[] = {
        {"plans/llama3-405b/model.llm", "topologies/meta-24k-roce.xml", {"gpus=16384", "schedule=zb_v", "pp=32"}, 1.03, true},
        {"plans/llama3-8b/model.llm", "topologies/h100x8.xml", {"pp=2", "vpp=3", "schedule=interleaved", "recompute=none"}, 1.04, true},
        {"plans/llama3-8b/model.llm", "topologies/h100x8.xml", {"pp=2", "tp=1", "cp=2", "schedule=zb_h1", "recompute=none", "microbatch=1"}, 1.03, true},
        {"plans/llama3-8b/model.llm", "topologies/h100x8.xml", {"pp=4", "schedule=1f1b", "recompute=none"}, 1.02, false},
        {"plans/llama3-70b/model.llm", "topologies/dgx-h100-superpod.xml", {"gpus=512", "tp=4", "cp=4", "pp=4", "microbatch=1", "schedule=dualpipe", "sequence_parallel=yes"}, 1.05, true},
        {"plans/mixtral-8x22b/model.llm", "topologies/h100-1024.xml", {"gpus=256", "pp=16", "schedule=zb_h1", "recompute=none"}, 1.05, false},
        /* long steps, whose lives are too many for an item each */
        {"plans/deepseek-v3-1024/model.llm", "topologies/h800-2048.xml", {"gpus=1024", "pp=16", "schedule=dualpipe", "expert_room=1.2", "recompute=[norm, mla_up, ffn, moe]"}, 1.025, true},
        {"plans/llama3-70b/model.llm", "topologies/dgx-h100-superpod.xml", {"gpus=64", "tp=4", "pp=8", "microbatch=1", "schedule=zb_h1", "recompute=[norm]"}, 1.01, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct arena *a = arena_new();
        uint32_t nsets = 0, fullest = 0, scattered = 0;
        while (nsets < ARRAY_LEN(all[i].sets) && all[i].sets[nsets])
            nsets++;
        struct plan *p = plan_of(a, all[i].model, all[i].cluster, (const char **)all[i].sets, nsets);
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        for (uint32_t r = 0; r < p->nroles; r++)
            fullest = device_bytes(p->train[r]) > device_bytes(p->train[fullest]) ? r : fullest;
        const struct program *q = p->train[fullest];
        for (uint32_t b = 0; b < q->nbuffers; b++)
            scattered += q->buffers[b].scattered;
        double live = (double)p->timeline->roles[fullest].peak_live_bytes, ratio = (double)device_bytes(q) / live;
        CU_ASSERT(ratio >= 1 && ratio <= all[i].most);
        CU_ASSERT_EQUAL(scattered > 0, all[i].scattered);
        if (!(ratio <= all[i].most) || (scattered > 0) != all[i].scattered)
            printf("\n    %s %s: arena %.3f of the live peak, %u rings scattered", all[i].model, decision_text(a, p->job, &p->decision), ratio,
                   scattered);
        if (test_whole() || i == 2)
            CU_ASSERT_EQUAL(verify_plan(a, p, false)->nviolations, 0);
        plan_close(p);
        arena_free(a);
    }
}

/* what must be live fits the arena, what may be is no less than that, and the predicted step's peak lies between */
static void test_bounds(void)
{
    for (uint64_t seed = 0; seed < test_draws(200, 40); seed++) {
        struct arena *a = arena_new();
        struct plan *p = random_plan(a, 1000 + seed, 8);
        for (uint32_t r = 0; r < p->nroles; r++) {
            struct program *q = p->train[r];
            struct place_peak peak = place_peak(a, q);
            CU_ASSERT(peak.sure <= peak.possible);
            CU_ASSERT(peak.sure <= device_bytes(q));
            place_program(a, q, 0); /* once more, of rings that the first time has made */
            CU_ASSERT(peak.sure <= device_bytes(q));
        }
        CU_ASSERT_EQUAL(verify_plan(a, p, true)->nviolations, 0);
        plan_close(p);
        arena_free(a);
    }
}

/* does the check of a step, which comes behind the next one's early part, use this part? */
static bool is_checked(const struct program *p, const struct part *x, uint32_t check)
{
    for (uint32_t i = check; i < p->ninsns; i++)
        for (uint32_t k = 0; k < isa_info(p->insns[i].op)->noperands; k++) {
            const struct operand *o = &p->operands[p->insns[i].operand + k];
            const struct buffer *b = &p->buffers[x->buffer];
            if (o->buffer == x->buffer && (b->ring == NONE || o->offset / b->stride == x->slot))
                return true;
        }
    return false;
}

/* What the check of a step uses, and nothing else, is live in the early part as well, from end to end. */
static void test_checked(void)
{
    struct arena *a = arena_new();
    const char *why = "";
    struct job *job = text_job(
        a,
        "llmc 1\nmodel m {\n vocab 24\n width 16\n norm rmsnorm\n embed tokens\n repeat 4 {\n layer {\n"
        " attn gqa(heads=4, kv=2, rope=500)\n ffn swiglu(12)\n }\n }\n head untied\n}\ntrain {\n sequence 8\n"
        " batch 8 sequences\n precision fp32\n optimizer adamw(lr=1e-3)\n clip 1.0\n}\n"
        "plan {\n post_validation yes\n}\n");
    struct topo *host = random_host(a, 4);
    struct decision d = text_decision(a, job, host, "pp=4 microbatch=1 schedule=zb_h2");
    struct plan *p = compile_decision(a, job, host, &d, &(struct compile_options){0}, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    for (uint32_t r = 0; r < p->nroles; r++) {
        const struct program *q = p->train[r];
        const struct lives *l = place_lives(a, q);
        uint32_t phase[NPHASES + 1], at[NPHASES + 1][NQUEUES], checked = 0, kept = 0;
        CU_ASSERT(program_phases(q, phase) && program_phase_positions(q, at));
        for (uint32_t k = 0; k < l->nparts; k++)
            checked += is_checked(q, &l->parts[k], phase[PHASE_CHECK]);
        for (uint32_t k = l->first_life[l->nparts], last = NONE; k < l->nlives; k++) {
            const struct life *x = &l->lives[k], *same = &l->lives[x->same];
            CU_ASSERT(x->lo == 0 && x->hi == 2 * at[PHASE_BODY][QUEUE_COMPUTE] + 1);
            CU_ASSERT(x->part == same->part && x->first == same->first && same->last >= phase[PHASE_CHECK]);
            CU_ASSERT(is_checked(q, &l->parts[x->part], phase[PHASE_CHECK]));
            kept += x->part != last;
            last = x->part;
        }
        CU_ASSERT(kept == checked && checked > 0);
    }
    plan_close(p);
    arena_free(a);
}

/* where an operand's part begins in the arena */
static uint64_t part_start(const struct program *p, const struct operand *o)
{
    return program_operand_offset(p, o) - o->offset % p->buffers[o->buffer].stride;
}

/* Where the operands of an instruction on a part lie after placement, in *at; UINT64_MAX if it has none.  false: in two places. */
static bool find_place(const struct program *lowered, const struct program *placed, uint32_t insn, const struct part *x,
                       uint64_t *at)
{
    const struct operand *o = lowered->operands + lowered->insns[insn].operand;
    const struct operand *now = placed->operands + placed->insns[insn].operand;
    bool one = true;
    *at = UINT64_MAX;
    for (uint32_t k = 0; k < isa_info(lowered->insns[insn].op)->noperands; k++) {
        if (o[k].buffer != x->buffer || o[k].offset / lowered->buffers[x->buffer].stride != x->slot)
            continue;
        one &= now[k].buffer == o[k].buffer && (*at == UINT64_MAX || *at == part_start(placed, &now[k]));
        *at = part_start(placed, &now[k]);
    }
    return one;
}

/* What a program was lowered to, and that with its buffers placed: all operands of a life lie in one place, and lives that may
 * overlap in time share no byte.  Returns how many lives of a part lie in another place than the one before. */
static uint32_t check_lives(struct arena *a, const struct program *lowered, const struct program *placed)
{
    const struct lives *l = place_lives(a, lowered);
    uint64_t *start = ARENA_ARRAY(a, uint64_t, l->nlives + 1u);
    uint32_t moved = 0, astray = 0, shared = 0;
    for (uint32_t i = 0; i < l->nlives; i++) {
        const struct life *x = &l->lives[i];
        for (uint32_t n = x->first; n <= x->last && x->same == i; n++) {
            uint64_t at;
            astray += !find_place(lowered, placed, n, &l->parts[x->part], &at);
            start[i] = n == x->first ? at : start[i];
            astray += at != UINT64_MAX && (at != start[i] || at + l->parts[x->part].bytes > placed->arena_bytes);
        }
        start[i] = start[x->same];
        moved += i && x->same == i && x->part == x[-1].part && start[i] != start[i - 1];
        for (uint32_t k = 0; k < i; k++) {
            const struct life *y = &l->lives[k];
            bool apart = start[i] + l->parts[x->part].bytes <= start[k] || start[k] + l->parts[y->part].bytes <= start[i];
            bool one = x->part == y->part && start[i] == start[k]; /* one after the other */
            shared += x->lo <= y->hi && y->lo <= x->hi && !apart && !one;
        }
    }
    CU_ASSERT_EQUAL(astray, 0);
    CU_ASSERT_EQUAL(shared, 0);
    return moved;
}

/* the programs of a plan before they are placed */
static struct plan *lowered_again(struct arena *a, const struct plan *p)
{
    const struct compile_options o = {0};
    struct cost *cost;
    return compile_lowered(a, p->job, p->topo, &p->decision, &o, true, &cost);
}

/* Lives of one size have no more places than there are of them at a time, and those that meet have different ones. */
static void check_pool(const struct lives *l, const struct items *items, uint64_t bytes)
{
    uint32_t most = 0, places = 0;
    for (uint32_t i = 0; i < items->n; i++)
        places += items->bytes[i] == bytes;
    for (uint32_t i = 0; i < l->nlives; i++) {
        uint32_t now = 0;
        const struct life *x = &l->lives[i];
        for (uint32_t k = 0; k < l->nlives && l->parts[x->part].bytes == bytes; k++) {
            const struct life *y = &l->lives[k];
            bool meets = y->lo <= x->lo && x->lo <= y->hi;
            now += l->parts[y->part].bytes == bytes && meets;
            CU_ASSERT(!meets || y->part == x->part || items->of[i] != items->of[k]);
            CU_ASSERT(items->of[i] != items->of[k] || l->parts[y->part].bytes == bytes);
        }
        most = now > most ? now : most;
    }
    CU_ASSERT(places <= most);
}

static void test_pools(void)
{
    for (uint64_t seed = 0; seed < test_draws(40, 10); seed++) {
        struct arena *a = arena_new();
        struct plan *p = random_plan(a, 3000 + seed, 4);
        struct plan *lowered = lowered_again(a, p);
        const struct lives *l = place_lives(a, lowered->train[0]);
        const struct items *items = place_lives_apart(a, l, UINT64_MAX); /* of so much, all sizes are small */
        for (uint32_t i = 0; i < items->n; i++) {
            bool first = true;
            for (uint32_t k = 0; k < i; k++)
                first &= items->bytes[k] != items->bytes[i];
            if (first)
                check_pool(l, items, items->bytes[i]);
        }
        CU_ASSERT(items->n < l->nlives);
        plan_close(p);
        plan_close(lowered);
        arena_free(a);
    }
}

static void test_lives(void)
{
    uint32_t moved = 0;
    for (uint64_t seed = 0; seed < test_draws(200, 40); seed++) {
        struct arena *a = arena_new();
        struct plan *p = random_plan(a, 2000 + seed, 8);
        struct plan *lowered = lowered_again(a, p), *placed = lowered_again(a, p);
        for (uint32_t r = 0; r < p->nroles; r++) {
            struct error error;
            place_program(a, placed->train[r], 0);
            CU_ASSERT_EQUAL(program_check(placed->train[r], &error), STATUS_OK);
            moved += check_lives(a, lowered->train[r], placed->train[r]) > 0;
        }
        plan_close(p);
        plan_close(lowered);
        plan_close(placed);
        arena_free(a);
    }
    CU_ASSERT(moved > 20);
}

enum { TRIANGLE = 3, TRIANGLE_BYTES = 1024 };

/* y = constant, or y = x + x, on one of three buffers */
static void triangle_insn(struct program *p, uint32_t y, uint32_t x)
{
    uint32_t i = program_insn(p, x == NONE ? OP_FILL : OP_COPY);
    struct operand o = {.buffer = y, .dtype = DTYPE_F32, .mark = MARK_WRITE, .slot = UINT16_MAX, .rows = 1,
                        .cols = TRIANGLE_BYTES / 4, .ld = TRIANGLE_BYTES / 4};
    p->insns[i].seq = i;
    p->operands[p->insns[i].operand] = o;
    o.buffer = x;
    o.mark = MARK_READ;
    if (x != NONE)
        p->operands[p->insns[i].operand + OPND(COPY, x)] = o;
}

/* Of three buffers every two are live together once, but never all three: parts that have one place each take three places,
 * lives two. */
static void test_triangle(void)
{
    struct arena *a = arena_new();
    struct program *p = program_new(0, 1), *q = program_new(0, 1);
    struct program *both[] = {p, q};
    for (int k = 0; k < 2; k++) {
        for (uint32_t b = 0; b < TRIANGLE; b++) {
            struct buffer x = {.kind = BUFFER_STEP, .dtype = DTYPE_F32, .ring = NONE, .bytes = TRIANGLE_BYTES,
                               .stride = TRIANGLE_BYTES, .bucket = NONE, .shard_slot = NONE};
            snprintf(x.name, sizeof x.name, "corner%u", b);
            program_buffer(both[k], &x);
        }
        for (uint32_t b = 0; b < TRIANGLE; b++) {
            triangle_insn(both[k], b, NONE);
            triangle_insn(both[k], (b + 1) % TRIANGLE, b);
        }
    }
    CU_ASSERT_EQUAL(place_peak(a, p).possible, 2 * TRIANGLE_BYTES);
    place_program(a, p, 0);
    CU_ASSERT_EQUAL(p->arena_bytes, 2 * TRIANGLE_BYTES);
    CU_ASSERT(check_lives(a, q, p) > 0);
    program_free(p);
    program_free(q);
    arena_free(a);
}

enum { MOST_REGIONS = 24, MOST_ELEMENTS = 256 };

/* Operands on one buffer of 4-byte elements: several matrices side by side, each with a row length of its
 * own, and parts of them: columns, rows.  `has` says by operand and element whether the element is one of the
 * operand's. */
static uint32_t draw_regions(uint64_t *state, struct operand *o, bool has[][MOST_ELEMENTS])
{
    uint32_t n = 0, at = 0;
    for (uint32_t matrix = 2 + random_below(state, 2); matrix; matrix--) {
        uint32_t rows = 2 + random_below(state, 4), ld = 3 + random_below(state, 10);
        for (uint32_t part = random_below(state, 4), k = 0; k <= part; k++, n++) {
            bool columns = k % 2;
            uint32_t long_way = columns ? ld : rows, first = k ? random_below(state, long_way) : 0;
            uint32_t size = k ? 1 + random_below(state, long_way - first) : long_way;
            o[n] = (struct operand){.offset = 4 * (uint64_t)(at + first * (columns ? 1 : ld)),
                                    .rows = columns ? rows : size,
                                    .cols = columns ? size : ld,
                                    .ld = ld,
                                    .dtype = DTYPE_F32,
                                    .slot = UINT16_MAX};
            for (uint32_t i = 0; i < o[n].rows; i++)
                for (uint32_t j = 0; j < o[n].cols; j++)
                    has[n][o[n].offset / 4 + i * ld + j] = true;
        }
        at += rows * ld + random_below(state, 3);
    }
    return n;
}

/* Operands touch common cells where they have elements in common, and one covers what another touches if it
 * has all of the other's elements. */
static void test_cells(void)
{
    uint32_t wrong = 0, apart = 0, within = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct arena *a = arena_new();
        uint64_t state = seed;
        struct operand o[MOST_REGIONS];
        bool has[MOST_REGIONS][MOST_ELEMENTS];
        memset(has, 0, sizeof has);
        uint32_t n = draw_regions(&state, o, has);
        struct buffer b = {.kind = BUFFER_STEP, .ring = NONE, .bytes = 4 * MOST_ELEMENTS};
        b.stride = b.bytes;
        struct program p = {.buffers = &b, .nbuffers = 1, .operands = o, .noperands = n};
        const struct use *u = place_uses(a, &p);
        for (uint32_t x = 0; x < n; x++)
            for (uint32_t y = 0; y < n; y++) {
                bool meet = false, all = true;
                for (uint32_t e = 0; e < MOST_ELEMENTS; e++) {
                    meet |= has[x][e] && has[y][e];
                    all &= has[y][e] || !has[x][e];
                }
                wrong += ((u[x].touches & u[y].touches) != 0) != meet;
                wrong += !(u[x].touches & ~u[y].covers) != all;
                apart += !meet;
                within += all && x != y;
            }
        arena_free(a);
    }
    CU_ASSERT_EQUAL(wrong, 0);
    CU_ASSERT(apart > 1000 && within > 1000);
}

void suite_place(void)
{
    CU_pSuite s = CU_add_suite("place", NULL, NULL);
    CU_add_test(s, "known schedules", test_known);
    CU_add_test(s, "bounds", test_bounds);
    CU_add_test(s, "lives share no byte while they overlap", test_lives);
    CU_add_test(s, "pools", test_pools);
    CU_add_test(s, "lives where parts do not fit", test_triangle);
    CU_add_test(s, "what the check of a step needs", test_checked);
    CU_add_test(s, "cells of a buffer against its elements", test_cells);
}
