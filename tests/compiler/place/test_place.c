/* Placement: arenas close to what must be live, slots of rings where they fit, and rings in one piece where that is as good.
 *
 * Plans are drawn (random_layout.h); whether bytes are shared only over time is the verifier's to say. */

#include "compiler/place/place_private.h"
#include "compiler/model/sema.h"
#include "compiler/support/vec.h"
#include "compiler/topology/topo.h"
#include "tests/compiler/random_plan.h"
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
    const char *model, *cluster, *sets[6];
    double most; /* arena over what the predicted step has live, of the fullest role */
    bool scattered;
};

/* Schedules whose rings are not full at the same time: the arenas of most of them were 1.2 to 2.5 times the live peak with
 * rings in one piece and slots in turns. */
static void test_known(void)
{
    static const struct known all[] = {
        {"plans/llama3-405b/model.llm", "topologies/meta-24k-roce.xml", {"gpus=16384", "schedule=zb_v", "pp=32"}, 1.03, true},
        {"plans/llama3-8b/model.llm", "topologies/h100x8.xml", {"pp=2", "vpp=3", "schedule=interleaved", "recompute=none"}, 1.06, true},
        {"plans/llama3-8b/model.llm", "topologies/h100x8.xml", {"pp=2", "tp=1", "cp=2", "schedule=zb_h1", "recompute=none", "microbatch=1"}, 1.03, true},
        {"plans/llama3-8b/model.llm", "topologies/h100x8.xml", {"pp=4", "schedule=1f1b", "recompute=none"}, 1.02, false},
        {"plans/llama3-70b/model.llm", "topologies/dgx-h100-superpod.xml", {"gpus=512", "tp=4", "cp=4", "pp=4", "microbatch=1", "schedule=dualpipe"}, 1.05, true},
        {"plans/mixtral-8x22b/model.llm", "topologies/h100-1024.xml", {"gpus=256", "pp=16", "schedule=zb_h1", "recompute=none"}, 1.05, false},
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
        CU_ASSERT(ratio <= all[i].most);
        CU_ASSERT_EQUAL(scattered > 0, all[i].scattered);
        if (!(ratio <= all[i].most) || (scattered > 0) != all[i].scattered)
            printf("\n    %s %s: arena %.3f of the live peak, %u rings scattered", all[i].model, decision_text(a, p->job, &p->decision), ratio,
                   scattered);
        if (!e2e_quick() || i == 2)
            CU_ASSERT_EQUAL(verify_plan(a, p, false)->nviolations, 0);
        plan_close(p);
        arena_free(a);
    }
}

/* what must be live fits the arena, what may be is no less than that, and the predicted step's peak lies between */
static void test_bounds(void)
{
    for (uint64_t seed = 0; seed < (e2e_quick() ? 40 : 200); seed++) {
        struct arena *a = arena_new();
        struct plan *p = random_plan(a, 1000 + seed, 8);
        for (uint32_t r = 0; r < p->nroles; r++) {
            struct program *q = p->train[r];
            struct place_peak peak = place_peak(a, q);
            CU_ASSERT(peak.sure <= peak.possible);
            CU_ASSERT(peak.sure <= device_bytes(q));
            uint64_t before = q->arena_bytes;
            uint32_t places = q->nplaces;
            place_program(a, q, 0);
            CU_ASSERT_EQUAL(q->arena_bytes, before);
            CU_ASSERT_EQUAL(q->nplaces, places);
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
        for (uint32_t k = 0; k < isa_info((enum op)p->insns[i].op)->noperands; k++) {
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
        /* these lives are the last ones, in the parts' order */
        for (uint32_t k = l->nlives, next = l->nparts; k-- > 0 && l->lives[k].part < next; kept++) {
            const struct life *x = &l->lives[k];
            if (x->lo != 0 || x->hi != at[PHASE_BODY][QUEUE_COMPUTE])
                break;
            CU_ASSERT(is_checked(q, &l->parts[x->part], phase[PHASE_CHECK]));
            next = x->part;
        }
        CU_ASSERT(kept == checked && checked > 0);
    }
    plan_close(p);
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
    CU_add_test(s, "what the check of a step needs", test_checked);
    CU_add_test(s, "cells of a buffer against its elements", test_cells);
}
