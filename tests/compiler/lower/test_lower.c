/* Tests of lowering, order and placement: properties over random plans, and counts known from publications. */

#include "compiler/lower/order.h"
#include "tests/compiler/random_layout.h"
#include "tests/compiler/random_model.h"
#include "tests/compiler/random_plan.h"

#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>

void suite_lower(void);

/* structure, seq and waits of one program; out: number of faults */
static uint32_t order_faults(const struct program *p)
{
    uint32_t *position = malloc((p->ninsns + 1) * sizeof *position), count[NQUEUES], faults = 0;
    uint32_t *seq_at[NQUEUES];
    program_positions(p, position, count);
    for (uint32_t q = 0; q < NQUEUES; q++)
        seq_at[q] = calloc(count[q] + 1, sizeof **seq_at);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *n = &p->insns[i];
        faults += i && n->seq <= p->insns[i - 1].seq;
        seq_at[n->queue][position[i]] = n->seq;
        for (uint32_t w = n->wait; w < n->wait + n->nwaits; w++)
            faults += p->waits[w].queue == n->queue || seq_at[p->waits[w].queue][p->waits[w].position] >= n->seq ||
                      p->waits[w].position >= count[p->waits[w].queue];
    }
    for (uint32_t q = 0; q < NQUEUES; q++)
        free(seq_at[q]);
    free(position);
    return faults;
}

static void test_random_plans_are_sound(void)
{
    for (uint64_t seed = 0; seed < 150; seed++) {
        struct arena *a = arena_new();
        struct plan *p = random_plan(a, seed, 16);
        struct error error = {""};
        for (uint32_t r = 0; r < p->nroles; r++) {
            CU_ASSERT_EQUAL(program_check(p->train[r], &error), STATUS_OK);
            CU_ASSERT_EQUAL(program_check(p->eval[r], &error), STATUS_OK);
            CU_ASSERT_EQUAL(order_faults(p->train[r]), 0);
            CU_ASSERT_EQUAL(order_faults(p->eval[r]), 0);
            if (*error.text)
                fprintf(stderr, "seed %llu: %s\n", (unsigned long long)seed, error.text);
        }
        CU_ASSERT_EQUAL(ranks_check(p->ranks, (const struct program *const *)p->train, &error), STATUS_OK);
        plan_close(p);
        arena_free(a);
    }
}

static void test_eval_shares_persistent_buffers(void)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct arena *a = arena_new();
        struct plan *p = random_plan(a, seed, 8);
        for (uint32_t r = 0; r < p->nroles; r++)
            for (uint32_t b = 0; b < p->train[r]->nbuffers; b++) {
                const struct buffer *x = &p->train[r]->buffers[b], *y = &p->eval[r]->buffers[b];
                if (x->kind == BUFFER_STEP)
                    break;
                CU_ASSERT_STRING_EQUAL(x->name, y->name);
                CU_ASSERT_EQUAL(x->offset, y->offset);
                CU_ASSERT_EQUAL(x->bytes, y->bytes);
            }
        plan_close(p);
        arena_free(a);
    }
}

/* operands of one instruction never share bytes unless they name the same buffer */
static void test_placement_keeps_operands_apart(void)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct arena *a = arena_new();
        struct plan *p = random_plan(a, seed, 8);
        uint32_t clashes = 0;
        for (uint32_t r = 0; r < p->nroles; r++) {
            const struct program *g = p->train[r];
            for (uint32_t i = 0; i < g->ninsns; i++) {
                uint32_t first = g->insns[i].operand, n = isa_info(g->insns[i].op)->noperands;
                for (uint32_t x = first; x < first + n; x++)
                    for (uint32_t y = x + 1; y < first + n; y++) {
                        uint32_t bx = g->operands[x].buffer, by = g->operands[y].buffer;
                        if (bx == NONE || by == NONE || bx == by)
                            continue;
                        const struct buffer *u = &g->buffers[bx], *v = &g->buffers[by];
                        uint64_t ux = program_slot_offset(g, u, g->operands[x].offset / u->stride),
                                 vy = program_slot_offset(g, v, g->operands[y].offset / v->stride);
                        clashes += ux < vy + v->stride && vy < ux + u->stride;
                    }
            }
        }
        CU_ASSERT_EQUAL(clashes, 0);
        plan_close(p);
        arena_free(a);
    }
}

static uint32_t count_ops(const struct program *p, enum op op, enum queue q)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->ninsns; i++)
        n += p->insns[i].op == op && p->insns[i].queue == q;
    return n;
}

/* Llama-3 405B's 126 layers: per microbatch 504 all-reduces; with sequence parallelism 504 reduce-scatters, 504
 * all-gathers, and 252 more where inputs are gathered again for weight gradients (Korthikanti et al. 2022, section 4.2.2) */
static void test_collectives_of_405b(void)
{
    struct arena *a = arena_new();
    char *text = arena_printf(a, "llmc 1\nmodel m {\n vocab 96\n width 32\n norm rmsnorm\n embed tokens\n repeat 126 {\n"
                                 " layer {\n attn gqa(heads=4, kv=2, rope=10_000)\n ffn swiglu(48)\n }\n }\n head untied\n}\n"
                                 "train {\n sequence 16\n batch 1 sequences\n precision fp32\n}\n");
    struct job *job = text_job(a, text);
    struct topo *host = random_host(a, 8);
    const char *why = "";
    struct decision d = text_decision(a, job, host, "tp=2");
    struct plan *p = compile_decision(a, job, host, &d, &(struct compile_options){0}, &why);
    /* embedding, maximum and sum of the loss, and the head's input gradient come on top */
    CU_ASSERT_EQUAL(count_ops(p->train[0], OP_ALL_REDUCE, QUEUE_TP), 504 + 4);
    plan_close(p);
    d = text_decision(a, job, host, "tp=2 sp=1");
    p = compile_decision(a, job, host, &d, &(struct compile_options){0}, &why);
    CU_ASSERT_EQUAL(count_ops(p->train[0], OP_REDUCE_SCATTER, QUEUE_TP), 504 + 2);
    /* the head gathers its input twice, the embedding's backward the gradient once */
    CU_ASSERT_EQUAL(count_ops(p->train[0], OP_ALL_GATHER, QUEUE_TP), 504 + 252 + 3);
    CU_ASSERT_EQUAL(count_ops(p->train[0], OP_ALL_REDUCE, QUEUE_TP), 2);
    plan_close(p);
    arena_free(a);
}

/* 1F1B keeps min(m, p - r) microbatches of activations, GPipe m (planners' definitions, see schedule.h) */
static void test_ring_depths(void)
{
    struct arena *a = arena_new();
    struct job *job = text_job(a, tiny_llama);
    struct topo *host = random_host(a, 8);
    const char *why = "";
    struct decision d = text_decision(a, job, host, "pp=4");
    struct plan *p = compile_decision(a, job, host, &d, &(struct compile_options){0}, &why);
    for (uint32_t r = 0; r < 4; r++)
        CU_ASSERT_EQUAL(p->train[r]->rings[0].depth, 4 - r);
    plan_close(p);
    d = text_decision(a, job, host, "pp=4 gpipe=1");
    p = compile_decision(a, job, host, &d, &(struct compile_options){0}, &why);
    for (uint32_t r = 0; r < 4; r++)
        CU_ASSERT_EQUAL(p->train[r]->rings[0].depth, 16);
    plan_close(p);
    arena_free(a);
}

/* Slots that microbatches take in turns are four times as many as microbatches in flight, else as few as these: also where
 * what stays until I, here the layers' inputs, stays longest by far. */
static void test_turns(void)
{
    struct arena *a = arena_new();
    char *text = arena_printf(a, "llmc 1\nmodel m {\n vocab 32\n width 16\n norm rmsnorm\n embed tokens\n repeat 32 {\n"
                                 " layer {\n attn gqa(heads=2, kv=1, rope=10_000)\n ffn swiglu(16)\n }\n }\n head untied\n}\n"
                                 "train {\n sequence 4\n batch 64 sequences\n precision fp32\n}\n");
    struct job *job = text_job(a, text);
    struct topo *host = random_host(a, 16);
    const char *why = "";
    struct decision d = text_decision(a, job, host, "pp=16 schedule=zb_h1 full=1");
    struct plan *p = compile_decision(a, job, host, &d, &(struct compile_options){0}, &why);
    uint32_t turns = 0;
    for (uint32_t r = 0; r < 16; r++) {
        const struct ring *act = &p->train[r]->rings[0];
        CU_ASSERT_STRING_EQUAL(act->name, "act");
        CU_ASSERT(act->depth <= 16 - r || act->depth >= 4 * (16 - r));
        turns += act->depth > 16 - r;
    }
    CU_ASSERT(turns > 0 && turns < 15);
    plan_close(p);
    arena_free(a);
}

/* One chunk's action after another, a tick each: what F leaves until the end of I is `act`, what I leaves
 * until the end of W is `late`.  depth: slots of both. */
static void take_slots(const char *actions, uint32_t microbatches, uint32_t act_bytes, uint32_t late_bytes,
                       uint32_t depth[2])
{
    struct arena *a = arena_new();
    struct ring rings[2] = {{.name = "act"}, {.name = "late"}};
    struct buffer buffers[2] = {{.ring = 0, .stride = act_bytes}, {.ring = 1, .stride = late_bytes}};
    struct program p = {.rings = rings, .nrings = 2, .buffers = buffers, .nbuffers = 2};
    p.nroles = 8192; /* too many for slots in turns */
    struct ring_life *life = ARENA_ARRAY(a, struct ring_life, 2 * (size_t)microbatches);
    struct ring_life *act = life, *late = life + microbatches;
    uint32_t f = 0, i = 0, w = 0;
    for (uint32_t t = 0; actions[t]; t++) {
        const struct ring_life made = {.start = t,
                                       .grown = t + 1,
                                       .end = t + 1,
                                       .first = t,
                                       .last = t,
                                       .action = actions[t],
                                       .used = true};
        if (actions[t] == 'F') {
            act[f++] = made;
        } else if (actions[t] == 'I') {
            late[i] = made;
            act[i].last = t;
            act[i++].end = t + 1;
        } else {
            late[w].last = t;
            late[w++].end = t + 1;
        }
    }
    struct role r = {.p = &p, .microbatches = microbatches, .depth = depth};
    r.slots = ARENA_ARRAY(a, uint32_t, 2 * (size_t)microbatches);
    lower_take_cells(a, &r, life);
    arena_free(a);
}

/* What stays until I and what stays until W have slots apart, unless that needs more memory than slots that
 * are one.  In the second case, two each need 3 + 3 + 1 + 1 bytes, for the first microbatch's and the third's
 * part of `act` are one piece that has common moments with either slot of `late`; with slots of its own for
 * each microbatch the third's lies where the second's was, and the fullest moment is all that is needed, the
 * second I: 1 + 3 + 3. */
static void test_slots_apart(void)
{
    uint32_t depth[2];
    take_slots("FIWFIWFIW", 3, 1, 3, depth);
    CU_ASSERT_EQUAL(depth[0], 1);
    CU_ASSERT_EQUAL(depth[1], 1);
    take_slots("FFIIFWWIW", 3, 1, 3, depth);
    CU_ASSERT_EQUAL(depth[0], 3);
    CU_ASSERT_EQUAL(depth[1], 3);
}

/* Lives of microbatches in two rings, `act` and `late`, in a random order of F, I and W: most microbatches
 * are done with soon, some stay long. */
static struct ring_life *draw_lives(struct arena *a, uint64_t *state, uint32_t microbatches)
{
    struct ring_life *life = ARENA_ARRAY(a, struct ring_life, 2 * (size_t)microbatches);
    uint32_t t = 0, next = 0, done = 0, *stage = ARENA_ARRAY(a, uint32_t, microbatches);
    bool *stays = ARENA_ARRAY(a, bool, microbatches);
    for (uint32_t m = 0; m < microbatches; m++)
        stays[m] = !random_below(state, 16);
    while (done < 2 * microbatches) {
        uint32_t m = random_below(state, next + 1);
        while (m < next && (stage[m] == 2 || (stays[m] && random_below(state, 64))))
            m++;
        if (m == microbatches)
            continue;
        const struct ring_life made = {.start = t,
                                       .grown = t + 1,
                                       .end = t + 1,
                                       .first = t,
                                       .last = t,
                                       .action = m == next ? 'F' : 'I',
                                       .used = true};
        if (m == next) {
            life[next++] = made;
        } else {
            struct ring_life *ends = &life[stage[m] * microbatches + m];
            ends->end = t + 1;
            ends->last = t;
            if (!stage[m])
                life[microbatches + m] = made;
            stage[m]++;
            done++;
        }
        t++;
    }
    return life;
}

/* Two microbatches have one slot only if the one is done with before the other starts, in turns or not. */
static void test_slots_are_free(void)
{
    uint32_t shared = 0, wrong = 0, turns = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct arena *a = arena_new();
        uint64_t state = seed;
        uint32_t m = 24 + random_below(&state, 40), depth[2];
        struct ring rings[2] = {{.name = "act"}, {.name = "late"}};
        struct buffer buffers[2] = {{.ring = 0, .stride = 2}, {.ring = 1, .stride = 1}};
        struct program p = {.rings = rings, .nrings = 2, .buffers = buffers, .nbuffers = 2};
        p.nroles = 8192 / (m / 2 + random_below(&state, m)); /* turns of m / 2 slots or more */
        const struct ring_life *life = draw_lives(a, &state, m);
        struct role r = {.p = &p, .microbatches = m, .depth = depth};
        r.slots = ARENA_ARRAY(a, uint32_t, 2 * (size_t)m);
        lower_take_cells(a, &r, life);
        for (uint32_t x = 0; x < 2 * m; x++)
            for (uint32_t y = x + 1; y < (x < m ? m : 2 * m); y++) {
                bool apart = life[x].last < life[y].first || life[y].last < life[x].first;
                wrong += r.slots[x] == r.slots[y] && !apart;
                shared += r.slots[x] == r.slots[y];
            }
        turns += depth[0] > m / 2 - 1 && depth[0] < m;
        arena_free(a);
    }
    CU_ASSERT_EQUAL(wrong, 0);
    CU_ASSERT(shared > 1000 && turns > 20);
}

/* the same operation on the same operands, with the same attributes */
static bool equal_insns(const struct program *p, const struct insn *x, const struct insn *y)
{
    const struct isa_info *info = isa_info(x->op);
    const struct operand *o = &p->operands[x->operand], *other = &p->operands[y->operand];
    const struct attr *t = &p->attrs[x->attr], *beside = &p->attrs[y->attr];
    return x->op == y->op && !memcmp(o, other, info->noperands * sizeof *o) &&
           !memcmp(t, beside, info->nattrs * sizeof *t);
}

/* Equal instructions have one list of operands, also in slots of rings: there are as many lists as
 * combinations of slots, not as microbatches. */
static void test_lists_are_shared(void)
{
    static const char *const decisions[] = {"pp=2", "pp=2 schedule=zb_h1", "pp=2 vpp=2 schedule=interleaved",
                                            "tp=2 dp=2 full=1"};
    uint32_t twice = 0, shared = 0;
    for (size_t k = 0; k < sizeof decisions / sizeof *decisions; k++) {
        struct arena *a = arena_new();
        struct job *job = text_job(a, tiny_llama);
        struct topo *host = random_host(a, 8);
        const char *why = "";
        struct decision d = text_decision(a, job, host, decisions[k]);
        struct plan *p = compile_decision(a, job, host, &d, &(struct compile_options){0}, &why);
        const struct program *q = p->train[0];
        for (uint32_t i = 0; i < q->ninsns; i++)
            for (uint32_t j = 0; j < i; j++)
                if (equal_insns(q, &q->insns[i], &q->insns[j])) {
                    shared += q->insns[i].operand == q->insns[j].operand;
                    twice += q->insns[i].operand != q->insns[j].operand;
                }
        plan_close(p);
        arena_free(a);
    }
    CU_ASSERT_EQUAL(twice, 0);
    CU_ASSERT(shared > 1000);
}

static void test_equal_inputs_give_equal_bytes(void)
{
    for (uint64_t seed = 0; seed < 10; seed++) {
        struct arena *a = arena_new();
        struct plan *p = random_plan(a, seed, 8), *q = random_plan(a, seed, 8);
        for (uint32_t r = 0; r < p->nroles; r++) {
            uint8_t *x, *y;
            size_t n, m;
            CU_ASSERT_EQUAL(program_encode(p->train[r], &x, &n), STATUS_OK);
            CU_ASSERT_EQUAL(program_encode(q->train[r], &y, &m), STATUS_OK);
            CU_ASSERT_EQUAL(n, m);
            CU_ASSERT(n == m && !memcmp(x, y, n));
            free(x);
            free(y);
        }
        plan_close(p);
        plan_close(q);
        arena_free(a);
    }
}

/* The boxes of one rank's program are what the model is said to have, padding aside. */
static void test_parameters(void)
{
    uint32_t biases = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct arena *a = arena_new();
        uint64_t state = seed, elements = 0;
        const char *why = "";
        struct job *job = text_job(a, random_model(a, &state));
        struct topo *host = random_host(a, 1);
        struct decision d = layout_alone(a, job, host);
        struct plan *p = compile_decision(a, job, host, &d, &(struct compile_options){0}, &why);
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        for (uint32_t i = 0; i < p->train[0]->ntensors; i++) {
            const struct tensor *t = &p->train[0]->tensors[i];
            uint64_t rows = t->transposed ? t->cols : t->rows, cols = t->transposed ? t->rows : t->cols;
            rows = t->row + rows > t->shape[0] ? t->shape[0] - t->row : rows; /* of the vocabulary, padded */
            elements += tensor_boxes(t) * rows * cols;
            biases += !strcmp(t->name, "lm_head.bias");
        }
        CU_ASSERT_EQUAL(elements, model_parameters(&job->model) + model_predict_parameters(&job->model));
        if (elements != model_parameters(&job->model) + model_predict_parameters(&job->model))
            printf("\n    seed %llu: %llu elements, %llu and %llu parameters", (unsigned long long)seed, (unsigned long long)elements,
                   (unsigned long long)model_parameters(&job->model), (unsigned long long)model_predict_parameters(&job->model));
        plan_close(p);
        arena_free(a);
    }
    CU_ASSERT(biases > 0);
}

void suite_lower(void)
{
    CU_pSuite s = CU_add_suite("lower", NULL, NULL);
    CU_add_test(s, "random plans are sound", test_random_plans_are_sound);
    CU_add_test(s, "evaluation shares persistent buffers", test_eval_shares_persistent_buffers);
    CU_add_test(s, "placement keeps operands apart", test_placement_keeps_operands_apart);
    CU_add_test(s, "collectives of 126 layers", test_collectives_of_405b);
    CU_add_test(s, "ring depths", test_ring_depths);
    CU_add_test(s, "slots in turns", test_turns);
    CU_add_test(s, "slots of what stays until I and until W", test_slots_apart);
    CU_add_test(s, "slots are free when they are taken", test_slots_are_free);
    CU_add_test(s, "equal instructions share their operands", test_lists_are_shared);
    CU_add_test(s, "tensors are the model's parameters", test_parameters);
    CU_add_test(s, "equal inputs give equal bytes", test_equal_inputs_give_equal_bytes);
}
