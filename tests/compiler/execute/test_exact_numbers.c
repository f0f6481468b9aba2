/* The exact interpreter tells apart jobs that differ in one number of the model or the optimizer: otherwise a plan that
 * was lowered with a wrong one would compute what one rank computes. */

#include "compiler/execute/exact.h"
#include "compiler/execute/machine.h"
#include "tests/compiler/random_layout.h"
#include "tests/compiler/random_plan.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <string.h>

static const char base[] =
    "llmc 1\nmodel tiny {\n    vocab 97\n    width 32\n    norm rmsnorm(eps=1e-5)\n    embed tokens(scale=2)\n"
    "    repeat 2 {\n        layer {\n"
    "            attn gqa(heads=4, kv=2, head=8, rope=10_000, window=8, softcap=50, scale=0.3)\n"
    "            ffn swiglu(48)\n        }\n    }\n    head untied(softcap=30, scale=0.5)\n}\n"
    "train {\n    sequence 16\n    batch 4 sequences\n    precision fp32\n    clip 1.5\n"
    "    optimizer adamw(lr=1e-3, beta1=0.8, beta2=0.9, eps=1e-7, weight_decay=0.2)\n}\n";

static const struct {
    const char *find, *replace;
} numbers[] = {
    {"rmsnorm(eps=1e-5)", "rmsnorm(eps=1e-6)"},
    {"tokens(scale=2)", "tokens(scale=3)"},
    {"rope=10_000", "rope=20_000"},
    {"window=8", "window=7"},
    {"softcap=50", "softcap=40"},
    {"scale=0.3", "scale=0.4"},
    {"softcap=30", "softcap=20"},
    {"scale=0.5", "scale=0.25"},
    {"clip 1.5", "clip 2.5"},
    {"beta1=0.8", "beta1=0.7"},
    {"beta2=0.9", "beta2=0.99"},
    {"eps=1e-7", "eps=1e-6"},
    {"weight_decay=0.2", "weight_decay=0.1"},
};

static struct plan *alone(struct arena *a, const char *text)
{
    const char *why = "";
    struct topo *host = random_host(a, 1);
    struct job *job = text_job(a, text);
    struct decision d = layout_alone(a, job, host);
    struct plan *p = compile_decision(a, job, host, &d, &(struct compile_options){0}, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    return p;
}

/* base with other words for a few */
static const char *instead(struct arena *a, const char *find, const char *replace)
{
    const char *at = strstr(base, find);
    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    return arena_printf(a, "%.*s%s%s", (int)(at - base), base, replace, at + strlen(find));
}

static void test_numbers(void)
{
    struct arena *a = arena_new();
    const char *why = "";
    struct plan *p = alone(a, base);
    struct exact_truth *truth = exact_truth(a, p, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(truth);
    CU_ASSERT_PTR_NULL(exact_compare(a, p, truth, 0).why);
    plan_close(p);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        p = alone(a, instead(a, numbers[i].find, numbers[i].replace));
        bool differs = exact_compare(a, p, truth, 0).why != NULL;
        if (!differs)
            printf("\n    %s computes the same as %s", numbers[i].replace, numbers[i].find);
        CU_ASSERT(differs);
        plan_close(p);
    }
    arena_free(a);
}

/* Nothing that an optimizer reads or leaves is left out: in two steps all gradients, after the last all
 * parameters, moments and biases of routers, and nine numbers of every step and its evaluation. */
static void test_compared(void)
{
    enum {
        TABLE = 97 * 32,
        ATTENTION = (2 * 32 + 2 * 16) * 32 + 2 * 32, /* with both norms */
        FFN = 3 * 48 * 32,
        EXPERTS = 8 * 32 + 8 * 3 * 16 * 32
    };
    static const char adam[] = "adamw(lr=1e-3, beta1=0.8, beta2=0.9, eps=1e-7, weight_decay=0.2)",
                      ffn[] = "ffn swiglu(48)",
                      experts[] = "moe swiglu(16) {\n experts 8\n active 2\n "
                                  "router sigmoid(bias=yes, rate=0.01)\n }";
    static const struct {
        const char *find, *replace;
        uint64_t each, layer, biases; /* numbers of an element; elements of a layer */
    } cases[] = {{adam, adam, 2 + 3, ATTENTION + FFN, 0},
                 {adam, "sgd(lr=0.1, momentum=0.9)", 2 + 2, ATTENTION + FFN, 0},
                 {adam, "sgd(lr=0.1)", 2 + 1, ATTENTION + FFN, 0},
                 {ffn, experts, 2 + 3, ATTENTION + EXPERTS, 2 * 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena *a = arena_new();
        const char *why = "";
        struct plan *p = alone(a, instead(a, cases[i].find, cases[i].replace));
        struct exact_truth *truth = exact_truth(a, p, &why);
        CU_ASSERT_PTR_NOT_NULL_FATAL(truth);
        struct exact_result r = exact_compare(a, p, truth, 0);
        uint64_t want = cases[i].each * (2 * TABLE + 2 * cases[i].layer + 32) + cases[i].biases + 2 * 9;
        CU_ASSERT_PTR_NULL(r.why);
        CU_ASSERT_EQUAL(r.elements, want);
        if (r.why || r.elements != want)
            printf("\n    %s: %llu numbers instead of %llu, %s", cases[i].replace,
                   (unsigned long long)r.elements, (unsigned long long)want, r.why ? r.why : "equal");
        plan_close(p);
        arena_free(a);
    }
}

/* what counts nothing in any number, a prediction module of no weight, is missed where nobody updates it */
static void test_missed(void)
{
    struct arena *a = arena_new();
    const char *why = "";
    struct plan *more = alone(a, instead(a, "    head", "    predict 1 ahead { weight 0 }\n    head"));
    struct plan *p = alone(a, base);
    struct exact_truth *truth = exact_truth(a, more, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(truth);
    struct exact_result r = exact_compare(a, p, truth, 0);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r.why);
    CU_ASSERT_STRING_EQUAL(r.why,
                           "no rank updates row 0, column 0 of model.layers.2.self_attn.q_proj.weight");
    plan_close(p);
    plan_close(more);
    arena_free(a);
}

/* windows and soft caps where sequences are split: their places and the caps of every part are those of one rank */
static void test_split(void)
{
    static const char *const layouts[] = {"ring=2 microbatch=1", "all_gather=2 microbatch=1",
                                          "all_to_all=2 microbatch=1", "tp=2 sp=1 ring=2 microbatch=1"};
    struct arena *a = arena_new();
    const char *why = "";
    struct plan *one = alone(a, base);
    struct exact_truth *truth = exact_truth(a, one, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(truth);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        struct topo *host = random_host(a, 4);
        struct job *job = text_job(a, base);
        struct decision d = text_decision(a, job, host, layouts[i]);
        struct plan *p = compile_decision(a, job, host, &d, &(struct compile_options){0}, &why);
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        struct exact_result r = exact_compare(a, p, truth, 1);
        if (r.why)
            printf("\n    %s: %s", layouts[i], r.why);
        CU_ASSERT_PTR_NULL(r.why);
        plan_close(p);
    }
    plan_close(one);
    arena_free(a);
}

/* ---- kernels write all that they are to write ---- */

/* rows or columns by the name that the table gives them: "1", "h", "2h"; CONCAT's w is 2 h */
static uint32_t size_of(const char *name)
{
    uint32_t times = *name >= '1' && *name <= '9' ? (uint32_t)(*name++ - '0') : 1;
    return times * (*name == 't' ? 3 : *name == 'w' ? 16 : *name ? 8 : 1);
}

/* May it be run on random numbers?  Not where whole numbers say what to do: attributes, indices, places. */
static bool plain(const struct isa_info *info)
{
    for (uint32_t i = 0; i < info->nattrs; i++)
        if (info->attr[i].kind != ATTR_REAL)
            return false;
    for (uint32_t i = 0; i < info->noperands; i++)
        if (info->operand[i].dtype == 'I')
            return false;
    return info->unit != UNIT_P2P && info->unit != UNIT_COLLECTIVE;
}

/* Numbers modulo 2^61 - 1 are next to never 0: what is 0 afterwards was not written. */
static void test_written(void)
{
    uint32_t nwritten = 0;
    for (enum op op = 0; op < NOPS; op++) {
        struct arena *a = arena_new();
        const struct isa_info *info = isa_info(op);
        exact_kernel *kernel = exact_kernel_of(op);
        struct exact_args k = {.vocab = 97, .garbage = 1, .scratch = a};
        for (uint32_t i = 0; kernel && plain(info) && i < info->noperands; i++) {
            k.v[i] = (struct exact_view){NULL, size_of(info->operand[i].rows), size_of(info->operand[i].cols)};
            size_t n = (size_t)k.v[i].rows * k.v[i].cols;
            k.v[i].at = ARENA_ARRAY(a, uint64_t, n);
            for (size_t e = 0; info->operand[i].mark == MARK_READ && e < n; e++)
                k.v[i].at[e] = field_hash(1000 + op, i, e);
        }
        for (uint32_t i = 0; i < info->nattrs; i++)
            k.attr[i].f = 0.5;
        if (kernel && plain(info))
            kernel(&k);
        for (uint32_t i = 0; kernel && plain(info) && i < info->noperands; i++)
            for (size_t e = 0; info->operand[i].mark != MARK_READ && e < (size_t)k.v[i].rows * k.v[i].cols; e++) {
                CU_ASSERT_NOT_EQUAL(k.v[i].at[e], 0);
                if (!k.v[i].at[e])
                    printf("\n    %s leaves element %zu of %s", info->name, e, info->operand[i].name);
                nwritten++;
            }
        arena_free(a);
    }
    CU_ASSERT(nwritten > 100);
}

/* ---- kernels by hand: a rule that one rank and many share shows in no comparison of them ---- */

static void test_targets(void)
{
    uint64_t logits[2][3] = {{5, 6, 7}, {8, 9, 10}}, max[2] = {7, 10}, targets[2] = {(uint64_t)-1, 1}, sum[2][2] = {{0}},
             dlogits[2][3];
    struct exact_args k = {.vocab = 3};
    k.v[OPND(XENT_SUM, sum)] = (struct exact_view){*sum, 2, 2};
    k.v[OPND(XENT_SUM, logits)] = (struct exact_view){*logits, 2, 3};
    k.v[OPND(XENT_SUM, max)] = (struct exact_view){max, 2, 1};
    k.v[OPND(XENT_SUM, targets)] = (struct exact_view){targets, 2, 1};
    k.attr[ATTR(XENT_SUM, vocab)].i = 3;
    exact_XENT_SUM(&k);
    uint64_t e[3], total = 0;
    for (uint32_t j = 0; j < 3; j++) {
        e[j] = exact_exp(field_sub(logits[1][j], 10));
        total = field_add(total, e[j]);
    }
    CU_ASSERT(sum[0][0] == 1 && sum[0][1] == 0); /* a target beyond the sequence counts nothing */
    CU_ASSERT(sum[1][0] == total && sum[1][1] == field_sub(9, 10));
    struct exact_args i = {.vocab = 3};
    i.v[OPND(XENT_I, dlogits)] = (struct exact_view){*dlogits, 2, 3};
    i.v[OPND(XENT_I, logits)] = k.v[OPND(XENT_SUM, logits)];
    i.v[OPND(XENT_I, max)] = k.v[OPND(XENT_SUM, max)];
    i.v[OPND(XENT_I, sum)] = k.v[OPND(XENT_SUM, sum)];
    i.v[OPND(XENT_I, targets)] = k.v[OPND(XENT_SUM, targets)];
    i.attr[ATTR(XENT_I, vocab)].i = 3;
    i.attr[ATTR(XENT_I, scale)].f = 1;
    exact_XENT_I(&i);
    for (uint32_t j = 0; j < 3; j++) {
        CU_ASSERT_EQUAL(dlogits[0][j], 0);
        CU_ASSERT_EQUAL(dlogits[1][j], field_sub(field_mul(e[j], field_inverse(total)), j == 1));
    }
    k.attr[ATTR(XENT_SUM, start)].i = 3; /* the next rank's columns */
    k.attr[ATTR(XENT_SUM, vocab)].i = 6;
    memset(sum, 0, sizeof sum);
    exact_XENT_SUM(&k);
    CU_ASSERT(sum[0][0] == 0 && sum[0][1] == 0 && sum[1][0] == total && sum[1][1] == 0);
}

/* the best group: of a softmax by its best score, of sigmoids by the sum of its two best */
static uint32_t best_group(const uint64_t *score, bool two)
{
    uint64_t most = 0;
    uint32_t best = 0;
    for (uint32_t g = 0; g < 4; g++) {
        const uint64_t *s = score + 3 * g;
        uint64_t first = s[0] > s[1] ? s[0] : s[1], least = s[0] < s[1] ? s[0] : s[1], of;
        first = s[2] > first ? s[2] : first;
        least = s[2] < least ? s[2] : least;
        uint64_t all = field_add(field_add(s[0], s[1]), s[2]);
        of = two ? field_sub(all, least) : first;
        best = g == 0 || of > most ? g : best;
        most = g == 0 || of > most ? of : most;
    }
    return best;
}

static void test_groups(void)
{
    struct arena *a = arena_new();
    uint32_t differ = 0;
    for (int sigmoid = 0; sigmoid < 2; sigmoid++) {
        uint64_t logits[16][12], score[16][12], index[16][2], weight[16][2];
        struct exact_args k = {.scratch = a, .vocab = 1};
        for (uint32_t i = 0; i < 16 * 12; i++)
            logits[i / 12][i % 12] = field_hash(5, i, (uint64_t)sigmoid);
        k.v[OPND(ROUTE, index)] = (struct exact_view){*index, 16, 2};
        k.v[OPND(ROUTE, weight)] = (struct exact_view){*weight, 16, 2};
        k.v[OPND(ROUTE, score)] = (struct exact_view){*score, 16, 12};
        k.v[OPND(ROUTE, logits)] = (struct exact_view){*logits, 16, 12};
        k.attr[ATTR(ROUTE, sigmoid)].i = sigmoid;
        k.attr[ATTR(ROUTE, groups)].i = 4;
        k.attr[ATTR(ROUTE, pick)].i = 1;
        k.attr[ATTR(ROUTE, scale)].f = 1;
        exact_ROUTE(&k);
        for (uint32_t i = 0; i < 16; i++) {
            uint32_t group = best_group(score[i], sigmoid);
            differ += group != best_group(score[i], !sigmoid);
            CU_ASSERT(index[i][0] / 3 == group && index[i][1] / 3 == group && index[i][0] != index[i][1]);
            CU_ASSERT(score[i][index[i][0]] >= score[i][index[i][1]]);
        }
    }
    CU_ASSERT(differ > 2);
    arena_free(a);
}

/* A router's sigmoid is a random function that nothing else uses: not exp, no norm's, no rotation's. */
static void test_sigmoid(void)
{
    struct arena *a = arena_new();
    uint64_t logits[4] = {0, 1, 7, FIELD_P - 1}, score[4], index[4], weight[4];
    struct exact_args k = {.scratch = a, .vocab = 1};
    k.v[OPND(ROUTE, index)] = (struct exact_view){index, 4, 1};
    k.v[OPND(ROUTE, weight)] = (struct exact_view){weight, 4, 1};
    k.v[OPND(ROUTE, score)] = (struct exact_view){score, 4, 1};
    k.v[OPND(ROUTE, logits)] = (struct exact_view){logits, 4, 1};
    k.attr[ATTR(ROUTE, sigmoid)].i = 1;
    k.attr[ATTR(ROUTE, scale)].f = 2;
    exact_ROUTE(&k);
    for (uint32_t i = 0; i < 4; i++) {
        CU_ASSERT_EQUAL(score[i], field_hash(SALT_ROUTER, logits[i], 0));
        CU_ASSERT_EQUAL(weight[i], field_add(score[i], score[i]));
        for (uint64_t salt = SALT_TOKEN; salt <= SALT_CLAMP_SLOPE; salt++)
            CU_ASSERT(salt == SALT_ROUTER || field_hash(salt, logits[i], 0) != score[i]);
    }
    arena_free(a);
}

enum { TOKENS = 12, CHOICES = 2, NEXPERTS = 6, NBLOCKS = 2 };

struct rules {
    uint32_t start, sequence, capacity, rows;
};

/* Where ARRANGE's sentence in isa.def puts a choice: behind those of earlier experts of its block, and behind
 * earlier ones of its own.  Of one sequence an expert takes no more than its capacity, a block no more than
 * its rows. */
static uint64_t place_of(const uint64_t *index, uint32_t at, const struct rules *r)
{
    uint64_t each = NEXPERTS / NBLOCKS, block = index[at] / each, before = 0;
    bool fits[TOKENS * CHOICES];
    for (uint32_t c = 0; c < TOKENS * CHOICES; c++) {
        uint32_t of = (r->start + c / CHOICES) / r->sequence, taken = 0;
        for (uint32_t d = 0; d < c; d++)
            taken += fits[d] && index[d] == index[c] && (r->start + d / CHOICES) / r->sequence == of;
        fits[c] = index[c] < NEXPERTS && (!r->capacity || taken < r->capacity);
        bool sooner = index[c] < index[at] || (index[c] == index[at] && c < at);
        before += fits[c] && index[c] / each == block && sooner;
    }
    return fits[at] && before < r->rows ? block * r->rows + before : UINT64_MAX;
}

static struct exact_view dense(uint64_t *at, uint32_t rows, uint32_t cols)
{
    return (struct exact_view){at, rows, cols};
}

static void test_places(void)
{
    uint32_t dropped = 0, kept = 0;
    uint64_t state = 3;
    for (uint32_t round = 0; round < 200; round++) {
        struct arena *a = arena_new();
        uint64_t index[TOKENS * CHOICES], place[TOKENS * CHOICES];
        uint64_t counts[NEXPERTS] = {0}, here[NEXPERTS] = {0};
        struct rules r = {.start = random_below(&state, 4), .sequence = 3 + random_below(&state, 4)};
        r.capacity = random_below(&state, 4);
        r.rows = 4 + random_below(&state, 9);
        for (uint32_t c = 0; c < TOKENS * CHOICES; c++)
            index[c] = random_below(&state, 8) ? random_below(&state, NEXPERTS) : UINT64_MAX;
        struct exact_args k = {.scratch = a};
        k.v[OPND(ARRANGE, place)] = dense(place, TOKENS, CHOICES);
        k.v[OPND(ARRANGE, counts)] = dense(counts, NEXPERTS, 1);
        k.v[OPND(ARRANGE, index)] = dense(index, TOKENS, CHOICES);
        k.attr[ATTR(ARRANGE, experts)].i = NEXPERTS;
        k.attr[ATTR(ARRANGE, blocks)].i = NBLOCKS;
        k.attr[ATTR(ARRANGE, rows)].i = r.rows;
        k.attr[ATTR(ARRANGE, capacity)].i = r.capacity;
        k.attr[ATTR(ARRANGE, sequence)].i = r.sequence;
        k.attr[ATTR(ARRANGE, start)].i = r.start;
        exact_ARRANGE(&k);
        for (uint32_t c = 0; c < TOKENS * CHOICES; c++) {
            CU_ASSERT_EQUAL(place[c], place_of(index, c, &r));
            dropped += place[c] == UINT64_MAX && index[c] < NEXPERTS;
            kept += place[c] != UINT64_MAX;
            if (place[c] != UINT64_MAX)
                here[index[c]]++;
        }
        CU_ASSERT_EQUAL(memcmp(counts, here, sizeof here), 0);
        arena_free(a);
    }
    CU_ASSERT(dropped > 500 && kept > 1000);
}

enum { ROWS = 3, HEADS = 2, NOPE = 3, ROPE = 2, VALUE = 4, HEAD = NOPE + ROPE, BOTH = NOPE + VALUE };

/* of latent attention, and their gradients */
struct latent {
    uint64_t kv[ROWS][HEADS * BOTH], rope[ROWS][ROPE], k[ROWS][HEADS * HEAD], v[ROWS][HEADS * VALUE];
};

static void fill(uint64_t *at, size_t bytes, uint64_t which)
{
    for (size_t i = 0; i < bytes / sizeof *at; i++)
        at[i] = field_hash(11, which, i);
}

static void run_latent(struct latent *x, struct latent *d)
{
    struct exact_args k = {.vocab = 1}, back = {.vocab = 1};
    k.v[OPND(MLA_KEYS, k)] = dense(*x->k, ROWS, HEADS * HEAD);
    k.v[OPND(MLA_KEYS, v)] = dense(*x->v, ROWS, HEADS * VALUE);
    k.v[OPND(MLA_KEYS, kv)] = dense(*x->kv, ROWS, HEADS * BOTH);
    k.v[OPND(MLA_KEYS, rope)] = dense(*x->rope, ROWS, ROPE);
    back.v[OPND(MLA_KEYS_I, dkv)] = dense(*d->kv, ROWS, HEADS * BOTH);
    back.v[OPND(MLA_KEYS_I, drope)] = dense(*d->rope, ROWS, ROPE);
    back.v[OPND(MLA_KEYS_I, dk)] = dense(*d->k, ROWS, HEADS * HEAD);
    back.v[OPND(MLA_KEYS_I, dv)] = dense(*d->v, ROWS, HEADS * VALUE);
    k.attr[ATTR(MLA_KEYS, heads)].i = back.attr[ATTR(MLA_KEYS_I, heads)].i = HEADS;
    k.attr[ATTR(MLA_KEYS, head)].i = back.attr[ATTR(MLA_KEYS_I, head)].i = HEAD;
    exact_MLA_KEYS(&k);
    exact_MLA_KEYS_I(&back);
}

static uint64_t product(const struct latent *x, const struct latent *y, uint32_t i, bool made)
{
    return made ? field_add(field_dot(x->k[i], 1, y->k[i], 1, HEADS * HEAD),
                            field_dot(x->v[i], 1, y->v[i], 1, HEADS * VALUE))
                : field_add(field_dot(x->kv[i], 1, y->kv[i], 1, HEADS * BOTH),
                            field_dot(x->rope[i], 1, y->rope[i], 1, ROPE));
}

/* A head's key is its first columns of kv, then what all heads have of positions; its value is the rest.  The
 * gradient goes back the same way: its sum of products with what was copied is that with the copies. */
static void test_latent_keys(void)
{
    struct latent x = {0}, d = {0};
    fill(*d.k, sizeof d.k, 1);
    fill(*d.v, sizeof d.v, 2);
    fill(*x.kv, sizeof x.kv, 3);
    fill(*x.rope, sizeof x.rope, 4);
    run_latent(&x, &d);
    for (uint32_t i = 0; i < ROWS; i++) {
        for (uint32_t h = 0; h < HEADS; h++) {
            CU_ASSERT_EQUAL(memcmp(&x.k[i][h * HEAD], &x.kv[i][h * BOTH], NOPE * sizeof **x.k), 0);
            CU_ASSERT_EQUAL(memcmp(&x.k[i][h * HEAD + NOPE], x.rope[i], ROPE * sizeof **x.k), 0);
            CU_ASSERT_EQUAL(memcmp(&x.v[i][h * VALUE], &x.kv[i][h * BOTH + NOPE], VALUE * sizeof **x.v), 0);
        }
        CU_ASSERT_EQUAL(product(&d, &x, i, true), product(&d, &x, i, false));
    }
}

/* ---- operands that share memory ---- */

/* Is what the first sum writes defined, when it reads operand a so many elements behind its result, its rows that much
 * further apart, and that many more of them? */
static bool defined_with(uint32_t behind, uint32_t apart, uint32_t longer)
{
    struct arena *a = arena_new();
    const char *why = "";
    struct plan *p = alone(a, base);
    struct exact_machine *m = exact_open(a, p, 1, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    struct program *t = p->train[0];
    struct exact_rank *r = &m->ranks[0];
    r->p = t;
    uint32_t at = 0;
    while (t->insns[at].op != OP_ADD)
        at++;
    struct operand *o = &t->operands[t->insns[at].operand], *x = &o[OPND(ADD, a)], *y = &o[OPND(ADD, y)];
    struct place from, to;
    *x = *y;
    x->mark = MARK_READ;
    x->offset += behind * 4;
    x->ld += apart;
    y->rows -= longer;
    CU_ASSERT(exact_place(m, 0, at, OPND(ADD, a), &from) && exact_place(m, 0, at, OPND(ADD, y), &to));
    uint64_t *result = ARENA_ARRAY(a, uint64_t, (size_t)to.rows * to.cols);
    CU_ASSERT(exact_compute(m, 0, at));
    uint64_t before = r->memory.undefined;
    memory_load(&r->memory, &to, result);
    bool defined = r->memory.undefined == before;
    exact_close(m);
    plan_close(p);
    arena_free(a);
    return defined;
}

static void test_shared(void)
{
    CU_ASSERT(defined_with(0, 0, 0));
    CU_ASSERT(!defined_with(1, 0, 0));
    CU_ASSERT(!defined_with(0, 1, 0));
    CU_ASSERT(!defined_with(0, 0, 1));
}

void suite_exact_numbers(void);
void suite_exact_numbers(void)
{
    CU_pSuite s = CU_add_suite("exact_numbers", NULL, NULL);
    CU_add_test(s, "every number of a model and its optimizer counts", test_numbers);
    CU_add_test(s, "all that an optimizer reads and leaves is compared", test_compared);
    CU_add_test(s, "what nobody updates", test_missed);
    CU_add_test(s, "windows and caps over split sequences", test_split);
    CU_add_test(s, "kernels write every element", test_written);
    CU_add_test(s, "targets beyond the sequence", test_targets);
    CU_add_test(s, "groups of experts", test_groups);
    CU_add_test(s, "a router's sigmoid", test_sigmoid);
    CU_add_test(s, "places of experts' rows", test_places);
    CU_add_test(s, "latent attention's keys", test_latent_keys);
    CU_add_test(s, "operands that share memory", test_shared);
}
