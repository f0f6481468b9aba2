/* `llmc check` makes a folder's plan once more of its own inputs.  Folders are forged here, with right
 * hashes: every key of plan.json, the decision, pins of the plan block, inputs, programs, ranks and
 * schedules; each forgery must be refused by name, and what nobody touched accepted.  A key that several folders
 * have is forged in the first of them, with LLMC_DRAWS=all in each. */

#include "compiler/origin/origin.h"
#include "tests/draws.h"
#include "tests/e2e/e2e.h"
#include "tests/e2e/forge.h"

#include <CUnit/CUnit.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL(experts)                                                                                       \
    "llmc 1\nmodel tiny {\n    vocab 97\n    width 32\n    norm rmsnorm\n    embed tokens\n    repeat 4 "    \
    "{\n        layer {\n"                                                                                   \
    "            attn gqa(heads=4, kv=2, rope=10_000)\n            " experts                                 \
    "\n        }\n    }\n    head untied\n}\n"                                                               \
    "train {\n    sequence 16\n    batch 16 sequences\n    precision fp32\n    optimizer "                   \
    "adamw(lr=1e-3)\n}\n"
#define DENSE MODEL("ffn swiglu(48)")
#define MIXED MODEL("moe swiglu(16) {\n                experts 4\n                active 2\n            }")

/* what folders are made of: plan.json has different keys in each */
static const struct base {
    const char *name, *model, *cluster, *plan;
} bases[] = {
    {"piped", DENSE, "topologies/cpu8.xml",
     "    tp = 2\n    pp = 2\n    dp = 2\n    microbatch = 2\n    schedule 1f1b\n    recompute "
     "full(layers=1)\n"},
    {"folded", DENSE, "topologies/cpu8.xml",
     "    pp = 2\n    dp = 1\n    cp = 2\n    tp = 1\n    schedule auto\n    recompute [ffn, norm]\n"},
    {"sharded", DENSE, "topologies/cpu16.xml",
     "    zero = 3\n    tp = 2\n    shard = 2\n    dp = 4\n    pp = 1\n    offload [activations]\n    schedule in [auto, gpipe]\n"},
    {"experts", MIXED, "topologies/cpu16.xml",
     "    ep = 4\n    pp = 2\n    vpp = 2\n    schedule interleaved\n    sequence_parallel yes\n"},
};
enum { NBASES = sizeof bases / sizeof *bases };

struct place {
    struct arena *a;
    char root[E2E_PATH], dir[E2E_PATH + 16], forged[E2E_PATH + 16];
    struct forge f; /* of the honest folder */
};

static void open_place(struct place *p, const struct base *b)
{
    static const char *const sets[] = {"batch=8 sequences", "gpus<=16"};
    *p = (struct place){.a = arena_new()};
    e2e_folder(p->root, arena_printf(p->a, "origin-%s", b->name));
    snprintf(p->dir, sizeof p->dir, "%s/plan", p->root);
    snprintf(p->forged, sizeof p->forged, "%s/forged", p->root);
    forge_plan(p->a, p->dir, arena_printf(p->a, "%splan {\n%s}\n", b->model, b->plan), b->cluster, sets, 2);
    forge_read(p->a, p->dir, &p->f);
}

static void close_place(struct place *p)
{
    arena_free(p->a);
}

/* a forged folder must be refused, with this in the first sentence (NULL: any) */
static bool expect_refused(struct place *p, const struct forge *f, const char *what, const char *sentence)
{
    const char *text;
    int code = forge_try(f, p->forged, &text);
    bool fine = code && *text && (!sentence || strstr(text, sentence));
    CU_ASSERT(fine);
    if (!fine)
        printf("\n    %s: code %d: %s\n    wanted: %s\n", what, code, text, sentence ? sentence : "(any)");
    return fine;
}

static void test_honest(void)
{
    for (uint32_t i = 0; i < NBASES; i++) {
        struct place p;
        const char *text;
        open_place(&p, &bases[i]);
        CU_ASSERT_EQUAL(forge_try(&p.f, p.forged, &text), 0);
        if (*text)
            printf("\n    %s: %s\n", bases[i].name, text);
        close_place(&p);
    }
}

/* ---- every key of plan.json ---- */

/* inputs, which a plan may have in any value that gives the same plan */
static bool is_input(const char *key)
{
    return !strcmp(key, "search.budget") || !strcmp(key, "search.top") || !strncmp(key, "set[", 4);
}

static void put_json(struct forge *f, const json_t *root)
{
    char *text = json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    forge_put(f, "plan.json", text, strlen(text));
    free(text);
}

/* another value of the same kind */
static json_t *changed(const json_t *v)
{
    if (json_is_integer(v))
        return json_integer(json_integer_value(v) + 1);
    if (json_is_real(v))
        return json_real(json_real_value(v) * 1.25 + 1e-3);
    if (json_is_boolean(v))
        return json_boolean(!json_is_true(v));
    if (json_is_string(v))
        return json_sprintf("%sx", json_string_value(v));
    return json_integer(2);
}

struct keys {
    struct place *place;
    json_t *root;  /* changed and mended again */
    json_t *tried; /* object: in this folder and those before it */
    bool all;      /* again what was tried in a folder before */
    uint32_t n;
};

static void try_key(struct keys *k, const char *key, const char *how)
{
    struct forge f = k->place->f;
    char name[160], *what = arena_printf(k->place->a, "%s %s", key, how);
    k->n++;
    if (json_object_get(k->tried, what) && !k->all)
        return;
    json_object_set_new(k->tried, what, json_true());
    const char *last = strrchr(key, '.');
    snprintf(name, sizeof name, "%s", last ? last + 1 : key);
    name[strcspn(name, "[")] = 0;
    put_json(&f, k->root);
    /* what a decision cannot be is said in words of its own; overrides may fail as statements */
    bool free_words = !strncmp(key, "decision", 8) || !strncmp(key, "set", 3) || !strncmp(key, "compiler", 8);
    expect_refused(k->place, &f, what, free_words ? NULL : name);
}

static void walk(struct keys *k, json_t *at, const char *key);

static void walk_object(struct keys *k, json_t *at, const char *key)
{
    json_t *copy = json_copy(at), *value;
    const char *name;
    json_object_foreach(copy, name, value) {
        char *inner = arena_printf(k->place->a, "%s%s%s", key, *key ? "." : "", name);
        json_object_del(at, name);
        try_key(k, inner, "removed");
        json_object_set(at, name, value);
        walk(k, value, inner);
        if (!json_is_object(value) && !json_is_array(value) && !is_input(inner)) {
            json_object_set_new(at, name, changed(value));
            try_key(k, inner, "changed");
            json_object_set(at, name, value);
        }
        json_object_set_new(at, name, json_string("x"));
        try_key(k, inner, "of another kind");
        json_object_set(at, name, value);
    }
    json_object_set_new(at, "extra", json_integer(1));
    try_key(k, arena_printf(k->place->a, "%s%sextra", key, *key ? "." : ""), "added");
    json_object_del(at, "extra");
    json_decref(copy);
}

static void walk(struct keys *k, json_t *at, const char *key)
{
    if (json_is_object(at))
        walk_object(k, at, key);
    for (size_t i = 0; i < json_array_size(at); i++) {
        char *inner = arena_printf(k->place->a, "%s[%zu]", key, i);
        json_t *value = json_incref(json_array_get(at, i));
        walk(k, value, inner);
        if (!json_is_array(value) && !is_input(inner)) {
            json_array_set_new(at, i, changed(value));
            try_key(k, inner, "changed");
        }
        json_array_set_new(at, i, json_null());
        try_key(k, inner, "nulled");
        json_array_set(at, i, value);
        json_array_insert(at, i, value);
        if (strncmp(key, "set", 3) != 0) /* an override said twice is the override */
            try_key(k, inner, "doubled");
        json_array_remove(at, i);
        json_decref(value);
    }
}

static void test_keys(void)
{
    json_t *tried = json_object();
    for (uint32_t i = 0; i < NBASES; i++) {
        struct place p;
        open_place(&p, &bases[i]);
        struct keys k = {.place = &p, .tried = tried, .all = test_draws(1, 0)};
        k.root = json_loads(forge_file(&p.f, "plan.json")->bytes, JSON_REJECT_DUPLICATES, NULL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(k.root);
        walk(&k, k.root, "");
        CU_ASSERT(k.n > 150);
        json_decref(k.root);
        close_place(&p);
    }
    json_decref(tried);
}

/* the same keys and values in other bytes: `check` compares those */
static void test_spelling(void)
{
    struct place p;
    open_place(&p, &bases[0]);
    struct forge f = p.f;
    json_t *root = json_loads(forge_file(&f, "plan.json")->bytes, 0, NULL);
    put_json(&f, root);
    expect_refused(&p, &f, "indented", "line 1 is '{', this compiler writes '{\"schema\": 1,'");
    json_decref(root);
    f = p.f;
    forge_put(&f, "programs/2.bin", "x", 1);
    expect_refused(&p, &f, "a file more", "MANIFEST lists it, but it is no file of this plan");
    f = p.f;
    struct plan_file first = f.files[0];
    f.files[0] = f.files[1];
    f.files[1] = first;
    expect_refused(&p, &f, "files in another order", "line 1 is '");
    close_place(&p);
}

/* ---- decisions ---- */

static const struct {
    uint32_t base;
    const char *from, *to, *from2, *to2; /* in plan.json */
    const char *sentence;
} decisions[] = {
    {0, "\"schedule\": \"1f1b\"", "\"schedule\": \"gpipe\"", NULL, NULL,
     "decision.schedule is gpipe, line 26 of model.llm asks for another: 'schedule 1f1b'"},
    {0, "\"microbatch\": 2, \"microbatches\": 2", "\"microbatch\": 1, \"microbatches\": 4", NULL, NULL,
     "decision.microbatch is 1, line 25 of model.llm asks for another: 'microbatch = 2'"},
    {0, "\"recompute_layers\": 1", "\"recompute_layers\": 2", NULL, NULL,
     "decision.recompute is full(layers=2), line 27 of model.llm asks for another: 'recompute "
     "full(layers=1)'"},
    {0, "\"sp\": false", "\"sp\": true", NULL, NULL, "decision.sp is true, the search chooses false"},
    {0, "\"layout\": \"Et*2|t*2L\"", "\"layout\": \"Et|t*3L\"", NULL, NULL,
     "decision.layout is \"Et|t*3L\", the search chooses \"Et*2|t*2L\""},
    {0, "\"zero\": 1, \"shard\": 2", "\"zero\": 0, \"shard\": 1", NULL, NULL,
     "decision.zero is 0, the search chooses 1"},
    {0, "\"zero\": 1", "\"zero\": 2", NULL, NULL, "decision.zero is 2, the search chooses 1"},
    {0, "\"order\": [\"tp\", \"cp\", \"dp\", \"pp\"]", "\"order\": [\"tp\", \"cp\", \"pp\", \"dp\"]", NULL,
     NULL, "decision.order[2] is \"pp\", the search chooses \"dp\""},
    {0, "\"offload\": []", "\"offload\": [\"optimizer\"]", NULL, NULL,
     "'decision.offload' is [\"optimizer\"]; by the inputs and the decision it is []"},
    {0, "\"tp\": 2", "\"tp\": 1", "\"gpus_used\": 8", "\"gpus_used\": 4",
     "ranks.bin is for 8 ranks of 2 roles, plan.json for 4 of 2"},
    {1, "\"recompute_detail\": [\"norm\", \"ffn\"]", "\"recompute_detail\": [\"ffn\"]", NULL, NULL,
     "decision.recompute is selective [ffn], line 27 of model.llm asks for another: 'recompute [ffn, norm]'"},
    {1, "\"context\": \"", "\"context\": \"ring\", \"was\": \"", NULL, NULL, "unknown key 'decision.was'"},
    {2, "\"prefetch\": 1", "\"prefetch\": 3", NULL, NULL, "decision.prefetch is 3, the search chooses 1"},
    {2, "\"zero\": 3", "\"zero\": 2", "\"prefetch\": 1", "\"prefetch\": null",
     "decision.zero is 2, line 22 of model.llm asks for another: 'zero = 3'"},
    {3, "\"schedule_group\": null", "\"schedule_group\": 2", NULL, NULL,
     "decision.schedule_group is 2, the search chooses null"},
    {3, "\"schedule\": \"interleaved\"", "\"schedule\": \"zb_v\"", NULL, NULL,
     "decision.schedule is zb_v, line 28 of model.llm asks for another: 'schedule interleaved'"},
};

static void test_decisions(void)
{
    for (uint32_t i = 0; i < sizeof decisions / sizeof *decisions; i++) {
        struct place p;
        open_place(&p, &bases[decisions[i].base]);
        struct forge f = p.f;
        bool edited = forge_edit(&f, "plan.json", decisions[i].from, decisions[i].to) &&
                      (!decisions[i].from2 || forge_edit(&f, "plan.json", decisions[i].from2, decisions[i].to2));
        CU_ASSERT(edited);
        if (!edited)
            printf("\n    %s is not in\n%s", decisions[i].from, (const char *)forge_file(&f, "plan.json")->bytes);
        expect_refused(&p, &f, decisions[i].to, decisions[i].sentence);
        close_place(&p);
    }
}

/* ---- inputs ---- */

static const struct {
    uint32_t base;
    const char *file, *from, *to, *sentence;
} inputs[] = {
    /* pins that the programs are not; a statement of the plan block counts once, so pins come as edits or
       additions */
    {0, "model.llm", "tp = 2", "tp = 1", "decision.tp is 2, line 22 of model.llm asks for another: 'tp = 1'"},
    {0, "model.llm", "pp = 2", "pp = 1", "decision.pp is 2, line 23 of model.llm asks for another: 'pp = 1'"},
    {0, "model.llm", "dp = 2", "dp = 1", "decision.dp is 2, line 24 of model.llm asks for another: 'dp = 1'"},
    {0, "model.llm", "microbatch = 2", "microbatch = 1",
     "decision.microbatch is 2, line 25 of model.llm asks for another: 'microbatch = 1'"},
    {0, "model.llm", "schedule 1f1b", "schedule in [gpipe, zb_h1]",
     "decision.schedule is 1f1b, line 26 of model.llm asks for another: 'schedule in [gpipe, zb_h1]'"},
    {0, "model.llm", "recompute full(layers=1)", "recompute none",
     "decision.recompute is full(layers=1), line 27 of model.llm asks for another: 'recompute none'"},
    {0, "model.llm", "    tp = 2", "    cp = 2\n    tp = 2",
     "decision.cp is 1, line 22 of model.llm asks for another: 'cp = 2'"},
    {0, "model.llm", "    tp = 2", "    vpp = 2\n    tp = 2",
     "decision.vpp is 1, line 22 of model.llm asks for another: 'vpp = 2'"},
    {0, "model.llm", "    tp = 2", "    zero = 0\n    tp = 2",
     "decision.zero is 1, line 22 of model.llm asks for another: 'zero = 0'"},
    {0, "model.llm", "    tp = 2", "    shard = 1\n    tp = 2",
     "decision.shard is 2, line 22 of model.llm asks for another: 'shard = 1'"},
    {0, "model.llm", "    tp = 2", "    sequence_parallel yes\n    tp = 2",
     "decision.sp is false, line 22 of model.llm asks for another: 'sequence_parallel yes'"},
    {0, "model.llm", "    tp = 2", "    order [dp, tp]\n    tp = 2",
     "decision.order is tp, cp, dp, pp, line 22 of model.llm asks for another: 'order [dp, tp]'"},
    {0, "model.llm", "    tp = 2", "    layout \"Et|t*3L\"\n    tp = 2",
     "decision.layout is 'Et*2|t*2L', line 22 of model.llm asks for another: 'layout \"Et|t*3L\"'"},
    {0, "model.llm", "    tp = 2", "    offload [optimizer]\n    tp = 2",
     "'decision.offload' is []; by the inputs and the decision it is [\"optimizer\"]"},
    {0, "model.llm", "    tp = 2", "    never overlap [pp]\n    tp = 2",
     "the decision cannot be lowered: never overlap of pp"},
    {0, "model.llm", "    tp = 2", "    never overlap [dp]\n    tp = 2", "predicted.step_time_s is "},
    {0, "model.llm", "    tp = 2", "    overlap all_to_all with compute\n    tp = 2",
     "the decision cannot be lowered: overlap of all_to_all without combined_1f1b, dualpipe or dualpipe_v"},
    {0, "model.llm", "    tp = 2", "    memory <= 1KiB\n    tp = 2",
     "model.llm, cluster.xml and the overrides have no plan: nothing fits in 1KiB"},
    {0, "model.llm", "    tp = 2", "    step_time <= 1us\n    tp = 2",
     "model.llm, cluster.xml and the overrides have no plan: "},
    {0, "model.llm", "    tp = 2", "    profile \"megatron-core\"\n    tp = 2",
     "decision.sp is false, the search chooses true"},
    {0, "model.llm", "    tp = 2", "    adjust host_op_us = 10\n    tp = 2", "predicted.step_time_s is "},
    {0, "model.llm", "    tp = 2", "    use \"other\"\n    tp = 2",
     "decision.node_type is 0, 'machine', line 22 of model.llm asks for another: 'use \"other\"'"},
    {0, "model.llm", "    schedule 1f1b\n", "", "decision.vpp is 1, the search chooses 2"},
    {1, "model.llm", "    pp = 2", "    context all_to_all\n    pp = 2",
     "asks for another: 'context all_to_all'"},
    {1, "model.llm", "schedule auto", "schedule gpipe",
     "decision.schedule is auto, line 26 of model.llm asks for another: 'schedule gpipe'"},
    {3, "model.llm", "ep = 4", "ep = 2", "decision.ep is 4, line 25 of model.llm asks for another: 'ep = 2'"},
    {3, "model.llm", "ep = 4", "ep = 4\n    etp = 2",
     "decision.etp is 1, line 26 of model.llm asks for another: 'etp = 2'"},
    {3, "model.llm", "schedule interleaved", "schedule interleaved(group=3)", NULL},
    /* the model and training */
    {0, "model.llm", "lr=1e-3", "lr=2e-3", "this compiler makes "},
    {0, "model.llm", "swiglu(48)", "swiglu(40)", "'model.parameters' is "},
    {0, "model.llm", "sequence 16", "sequence 32", NULL},
    {0, "model.llm", "precision fp32", "precision bf16", NULL},
    {0, "model.llm", "optimizer adamw(lr=1e-3)", "optimizer sgd(lr=1e-3)", NULL},
    {0, "model.llm", "rope=10_000", "rope=20_000", "theta=10000"},
    {0, "model.llm", "vocab 97", "vocab 96", "'model.parameters' is "},
    {0, "model.llm", "llmc 1\n", "llmc 1\n# a line more\n", "this compiler makes '4 compute TOKENS "},
    /* the cluster */
    {0, "cluster.xml", "dtype=\"fp32\" rate=\"20GFLOP/s\"", "dtype=\"fp32\" rate=\"40GFLOP/s\"",
     "predicted.step_time_s is "},
    {0, "cluster.xml", "memory-bandwidth=\"5GB/s\"", "memory-bandwidth=\"6GB/s\"",
     "predicted.step_time_s is "},
    {0, "cluster.xml", "host-bandwidth=\"2GB/s\"", "host-bandwidth=\"3GB/s\"", "predicted.step_time_s is "},
    {0, "cluster.xml", "memory=\"2GiB\"", "memory=\"65664KiB\"", "have no plan: nothing fits in 128KiB"},
    {0, "cluster.xml", "count=\"1\"", "count=\"2\"", NULL},
    {0, "cluster.xml", "name=\"cpu8\"", "name=\"cpu9\"",
     "'cluster.name' is \"cpu8\"; by the inputs and the decision it is \"cpu9\""},
    {0, "cluster.xml", "<scale-up kind=\"none\"/>", "<scale-up kind=\"pcie\" bandwidth=\"9GB/s\"/>",
     "predicted.step_time_s is "},
    {0, "cluster.xml", "</cluster>", "  <exclude gpus=\"machine1:7\" reason=\"off the bus\"/>\n</cluster>",
     NULL},
    /* overrides */
    {0, "plan.json", "\"batch=8 sequences\"", "\"batch=16 sequences\"", NULL},
    {0, "plan.json", "\"gpus<=16\"", "\"gpus<=4\"",
     "cluster.gpus_used is 8, the override 'gpus<=4' asks for another"},
    {0, "plan.json", "\"gpus<=16\"", "\"tp=1\"", "decision.tp is 2, the override 'tp=1' asks for another"},
    {0, "plan.json", "\"gpus<=16\"", "\"tpp=1\"", "plan.json: its 'set' cannot be applied to model.llm"},
    {0, "plan.json", "\"gpus<=16\"", "16", "plan.json: its 'set' cannot be applied to model.llm"},
    {0, "model.llm", "width 32", "wide 32", "model.llm cannot be read"},
    /* figures */
    {0, "plan.json", "\"mfu\": 0.", "\"mfu\": 0.9", "predicted.mfu is 0.9"},
    {0, "plan.json", "\"version\": \"", "\"version\": \"9.",
     "the folder was written by llmc 9.0.1.0, this is llmc 0.1.0, which can derive only its own plans again; "
     "make the plan again"},
};

static void test_inputs(void)
{
    for (uint32_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        struct place p;
        open_place(&p, &bases[inputs[i].base]);
        struct forge f = p.f;
        CU_ASSERT(forge_edit(&f, inputs[i].file, inputs[i].from, inputs[i].to));
        expect_refused(&p, &f, inputs[i].to, inputs[i].sentence);
        close_place(&p);
    }
}

/* ---- programs, ranks, schedules ---- */

/* an operand of a product for the other, where shapes allow: structure checks see nothing */
static void swap_operands(struct program *p)
{
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *in = &p->insns[i];
        struct operand *o = &p->operands[in->operand];
        if (in->op != OP_ADD || o[OPND(ADD, a)].buffer == NONE || o[OPND(ADD, b)].buffer == NONE)
            continue;
        struct operand x = o[OPND(ADD, a)];
        o[OPND(ADD, a)].buffer = o[OPND(ADD, b)].buffer;
        o[OPND(ADD, a)].offset = o[OPND(ADD, b)].offset;
        o[OPND(ADD, b)].buffer = x.buffer;
        o[OPND(ADD, b)].offset = x.offset;
        return;
    }
    CU_FAIL("no sum of two operands");
}

static void rename_buffer(struct program *p)
{
    strcpy(p->buffers[0].name, "another");
}

static void other_seed(struct program *p)
{
    p->job.seed++;
}

static void test_programs(void)
{
    static const struct {
        const char *file;
        void (*change)(struct program *p);
        const char *sentence;
    } cases[] = {
        {"programs/0.bin", swap_operands, "role 0: instruction "},
        {"programs/eval-1.bin", swap_operands, "role 1 (evaluation): instruction "},
        {"programs/1.bin", rename_buffer, "role 1: line "},
        {"programs/0.bin", other_seed, "role 0: line 4 of its text is 'job sequence=16 batch=8 "},
    };
    struct place p, other;
    open_place(&p, &bases[0]);
    open_place(&other, &bases[3]);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct forge f = p.f;
        forge_program(&f, cases[i].file, cases[i].change);
        expect_refused(&p, &f, cases[i].file, cases[i].sentence);
    }
    static const char *const taken[] = {"programs/0.bin", "programs/eval-0.bin", "programs/1.bin", "ranks.bin"};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        struct forge f = p.f;
        const struct plan_file *x = forge_file(&other.f, taken[i]);
        forge_put(&f, taken[i], x->bytes, x->size);
        expect_refused(&p, &f, taken[i], NULL);
    }
    struct forge f = p.f; /* one role's program as another's */
    forge_put(&f, "programs/1.bin", forge_file(&f, "programs/0.bin")->bytes, forge_file(&f, "programs/0.bin")->size);
    expect_refused(&p, &f, "role 0 as role 1", "programs/1.bin is the program of another role");
    close_place(&other);
    close_place(&p);
}

/* ranks.bin of another placement: every key of plan.json and every program stays */
static void test_ranks(void)
{
    struct place p;
    struct ranks *r;
    struct error error = {""};
    uint8_t *bytes;
    size_t size;
    open_place(&p, &bases[0]);
    for (int how = 0; how < 2; how++) {
        struct forge f = p.f;
        const struct plan_file *x = forge_file(&f, "ranks.bin");
        CU_ASSERT_EQUAL_FATAL(ranks_decode(x->bytes, x->size, &r, &error), STATUS_OK);
        if (how) {
            r->ranks[2].gpu = 3;
            r->ranks[3].gpu = 2;
        } else {
            r->values[r->ranks[1].slot] ^= 1;
        }
        CU_ASSERT_EQUAL_FATAL(ranks_encode(r, &bytes, &size), STATUS_OK);
        forge_put(&f, "ranks.bin", bytes, size);
        expect_refused(
            &p, &f, "ranks.bin",
            how ? "rank 2 has role 0 on GPU 3 of node 0, this compiler gives it role 0 on GPU 2 of node 0"
                : "slot value ");
        free(bytes);
        ranks_free(r);
    }
    close_place(&p);
}

/* Two neighbours of a schedule change places: on its n-th comma with a cell on both sides.  NULL: there are fewer. */
static char *swapped(struct arena *a, const char *text, uint32_t n)
{
    for (const char *at = text; (at = strchr(at, ',')); at++) {
        const char *start = at, *end = at + 1 + strcspn(at + 1, ",\n");
        while (start > text && start[-1] != ',' && start[-1] != '\n')
            start--;
        if (start != at && end != at + 1 && n-- == 0)
            return arena_printf(a, "%.*s%.*s,%.*s%s", (int)(start - text), text, (int)(end - at - 1), at + 1,
                                (int)(at - start), start, end);
    }
    return NULL;
}

static void test_schedule(void)
{
    struct place p;
    open_place(&p, &bases[1]);
    const char *text = forge_file(&p.f, PLAN_SCHEDULE)->bytes, *other;
    uint32_t tried = 0, most = test_draws_usual(24, 8, 8);
    for (; tried < most && (other = swapped(p.a, text, tried)); tried++) {
        struct forge f = p.f;
        forge_put(&f, PLAN_SCHEDULE, other, strlen(other));
        expect_refused(&p, &f, "schedule.csv", NULL);
    }
    CU_ASSERT(tried >= 8);
    close_place(&p);
}

/* files of schedules that are wished for travel with the plan, alone and in a list, chosen or not */
static void test_wished(void)
{
    static const char *const wishes[] = {"schedule \"own.csv\"", "schedule in [\"own.csv\", 1f1b]",
                                         "schedule in [gpipe, \"own.csv\"]"};
    struct place p;
    open_place(&p, &bases[1]);
    const struct plan_file *csv = forge_file(&p.f, PLAN_SCHEDULE);
    CU_ASSERT_PTR_NOT_NULL_FATAL(csv);
    forge_text(arena_printf(p.a, "%s/own.csv", p.root), csv->bytes);
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++) {
        const char *text, *dir = arena_printf(p.a, "%s/wished", p.root);
        static const char *const sets[] = {"batch=8 sequences"};
        forge_plan(p.a, dir,
                   arena_printf(p.a, "%splan {\n    pp = 2\n    dp = 1\n    cp = 2\n    tp = 1\n    %s\n}\n",
                                DENSE, wishes[i]),
                   bases[1].cluster, sets, 1);
        remove(arena_printf(p.a, "%s/away.csv", p.root));
        CU_ASSERT_EQUAL(rename(arena_printf(p.a, "%s/own.csv", p.root), arena_printf(p.a, "%s/away.csv", p.root)), 0);
        CU_ASSERT_EQUAL(forge_judge(p.a, dir, &text), 0);
        if (*text)
            printf("\n    %s: %s\n", wishes[i], text);
        struct forge f; /* here the schedule is an input, which programs must follow */
        forge_read(p.a, dir, &f);
        if (forge_file(&f, PLAN_SCHEDULE)) {
            const char *other = swapped(p.a, csv->bytes, 0);
            forge_put(&f, PLAN_SCHEDULE, other, strlen(other));
            expect_refused(&p, &f, wishes[i], NULL);
        }
        CU_ASSERT_EQUAL(rename(arena_printf(p.a, "%s/away.csv", p.root), arena_printf(p.a, "%s/own.csv", p.root)), 0);
    }
    close_place(&p);
}

/* ---- as people meet it ---- */

static void test_said(void)
{
    struct place p;
    open_place(&p, &bases[0]);
    struct forge f = p.f;
    const char *out = arena_printf(p.a, "%s/output", p.root);
    char text[4096];
    CU_ASSERT(forge_edit(&f, "plan.json", "\"step_time_s\": 0.", "\"step_time_s\": 1e-6, \"was\": 0."));
    forge_write(&f, p.forged);
    CU_ASSERT_EQUAL(e2e_command(out, "%s/llmc check %s", e2e_build(), p.dir), 0);
    e2e_read_text(out, text, sizeof text);
    CU_ASSERT_PTR_NOT_NULL(strstr(
        text,
        "\norigin holds: model.llm, cluster.xml and the overrides give this plan, 9 files to the byte\n"));
    CU_ASSERT_EQUAL(e2e_command(out, "sh -c '%s/llmc check %s; test $? = 1'", e2e_build(), p.forged), 0);
    e2e_read_text(out, text, sizeof text);
    CU_ASSERT(!strncmp(text, "properties 1-8 hold: ", 21));
    CU_ASSERT_PTR_NOT_NULL(
        strstr(text, "\norigin, plan.json: predicted.step_time_s is 1e-06, this compiler makes it 0.00"));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "\norigin, plan.json: predicted.was is 0.00"));
    CU_ASSERT_EQUAL(e2e_command(out, "sh -c '%s/llmc check --json %s; test $? = 1'", e2e_build(), p.forged), 0);
    json_t *root = json_load_file(out, 0, NULL);
    const json_t *origin = json_object_get(root, "origin"),
                 *first = json_array_get(json_object_get(origin, "differences"), 0);
    CU_ASSERT(json_is_false(json_object_get(root, "holds")) && json_is_false(json_object_get(origin, "holds")));
    CU_ASSERT_EQUAL(json_array_size(json_object_get(root, "violations")), 0);
    CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(first, "key")), "predicted.step_time_s");
    CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(first, "file")), "plan.json");
    json_decref(root);
    /* what bounds the search is part of the plan */
    CU_ASSERT_EQUAL(e2e_command(out,
                                "sh -c '%s/llmc plan %s.llm topologies/cpu16.xml --budget 20 --top 2 -q -o "
                                "%s/bounded && %s/llmc check %s/bounded && "
                                "grep -q \"top.: 2, .budget.: 20, \" %s/bounded/plan.json'",
                                e2e_build(), p.dir, p.root, e2e_build(), p.root, p.root),
                    0);
    /* shown is what follows from the folder, not what it says */
    CU_ASSERT_EQUAL(e2e_command(out, "sh -c '%s/llmc show %s --json | sed \"/^$/d\" | cmp - %s/plan.json'",
                                e2e_build(), p.forged, p.dir),
                    0);
    close_place(&p);
}

void suite_origin(void);
void suite_origin(void)
{
    CU_pSuite s = CU_add_suite("origin", NULL, NULL);
    CU_add_test(s, "an honest folder is accepted", test_honest);
    CU_add_test(s, "every key of plan.json", test_keys);
    CU_add_test(s, "other bytes, more files", test_spelling);
    CU_add_test(s, "another decision", test_decisions);
    CU_add_test(s, "other inputs, and pins that programs are not", test_inputs);
    CU_add_test(s, "programs that are others", test_programs);
    CU_add_test(s, "ranks that sit elsewhere", test_ranks);
    CU_add_test(s, "a schedule in another order", test_schedule);
    CU_add_test(s, "what check says", test_said);
    CU_add_test(s, "schedules of files travel with the plan", test_wished);
}
