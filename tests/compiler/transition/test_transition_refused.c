/* What is no transition, in the very words: plans of different jobs, state that is lost, folders of something else; and every
 * damage that a small folder can take. */

#include "compiler/verify/verify.h"
#include "runtime/hash.h"
#include "tests/compiler/random_plan.h"
#include "tests/compiler/transition/pairs.h"
#include "tests/compiler/transition/shadow.h"
#include "tests/draws.h"
#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOB(width, vocab, layers, ffn, head, sequence, batch, precision, optimizer)                                       \
    "llmc 1\nmodel tiny {\n    vocab " vocab "\n    width " width "\n    norm rmsnorm\n    embed tokens\n    repeat " layers \
    " {\n        layer {\n            attn gqa(heads=4, kv=2, head=8, rope=10_000)\n            ffn swiglu(" ffn            \
    ")\n        }\n    }\n    head " head "\n}\ntrain {\n    sequence " sequence "\n    batch " batch                       \
    " sequences\n    precision " precision "\n    optimizer " optimizer "\n}\n"
#define ADAM "adamw(lr=1e-3)"
static const char usual[] = JOB("32", "97", "2", "48", "untied", "16", "16", "fp32", ADAM);
#define DIFFERENT "the plans are of different jobs: "

static const struct {
    const char *name, *from, *to, *says; /* from: NULL, the usual one */
} jobs[] = {
    {"width", NULL, JOB("64", "97", "2", "48", "untied", "16", "16", "fp32", ADAM),
     DIFFERENT "their tensors lm_head.weight differ"},
    {"vocabulary", NULL, JOB("32", "96", "2", "48", "untied", "16", "16", "fp32", ADAM),
     DIFFERENT "their tensors lm_head.weight differ"},
    {"inner width", NULL, JOB("32", "97", "2", "64", "untied", "16", "16", "fp32", ADAM),
     DIFFERENT "their tensors model.layers.0.mlp.down_proj.weight differ"},
    {"more layers", NULL, JOB("32", "97", "3", "48", "untied", "16", "16", "fp32", ADAM),
     DIFFERENT "the first one has no tensor model.layers.2.input_layernorm.weight"},
    {"fewer tensors", NULL, JOB("32", "97", "2", "48", "tied", "16", "16", "fp32", ADAM),
     DIFFERENT "the second one has no tensor lm_head.weight"},
    {"batch", NULL, JOB("32", "97", "2", "48", "untied", "16", "32", "fp32", ADAM),
     DIFFERENT "batches of 16 x 16 and 32 x 16 tokens"},
    {"sequence", NULL, JOB("32", "97", "2", "48", "untied", "32", "16", "fp32", ADAM),
     DIFFERENT "batches of 16 x 16 and 16 x 32 tokens"},
    {"optimizer", NULL, JOB("32", "97", "2", "48", "untied", "16", "16", "fp32", "sgd(lr=0.1)"),
     DIFFERENT "their optimizers differ"},
    {"precision", NULL, JOB("32", "97", "2", "48", "untied", "16", "16", "bf16", ADAM),
     DIFFERENT "they keep lm_head.weight in different formats"},
    {"momentum", JOB("32", "97", "2", "48", "untied", "16", "16", "fp32", "sgd(lr=0.1)"),
     JOB("32", "97", "2", "48", "untied", "16", "16", "fp32", "sgd(lr=0.1, momentum=0.9)"),
     DIFFERENT "they keep lm_head.weight in different formats"},
    {"moments", JOB("32", "97", "2", "48", "untied", "16", "16", "bf16", ADAM),
     JOB("32", "97", "2", "48", "untied", "16", "16", "bf16(moments=bf16)", ADAM),
     DIFFERENT "they keep lm_head.weight in different formats"},
};

static void expect_refused(const char *name, const struct plan *from, const struct plan *to, uint32_t lost, const char *says)
{
    struct arena *a = arena_new();
    struct transition *t = NULL;
    struct error error = {""};
    bool fine = transition_make(a, from, to, lost, &t, &error) == STATUS_NO_PLAN && !strcmp(error.text, says);
    if (!fine)
        printf("\n    %s: it says '%s'", name, error.text);
    CU_ASSERT(fine);
    transition_close(t);
    arena_free(a);
}

static void test_jobs(void)
{
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        struct arena *a = arena_new();
        struct plan *from = text_plan(a, jobs[i].from ? jobs[i].from : usual, "tp=2 dp=2 zero=1 microbatch=2"),
                    *to = text_plan(a, jobs[i].to, "pp=2 dp=2 microbatch=1");
        expect_refused(jobs[i].name, from, to, NONE, jobs[i].says);
        plan_close(from);
        plan_close(to);
        arena_free(a);
    }
}

static struct plan *hosts_plan(struct arena *a, uint32_t nodes, uint32_t gpus, const char *decision)
{
    const char *why = "";
    struct job *job = text_job(a, usual);
    struct topo *topo = pair_hosts(a, nodes, gpus);
    struct decision d = text_decision(a, job, topo, decision);
    CU_ASSERT_FATAL(decision_place(a, topo, &d, &why));
    struct plan *p = compile_decision(a, job, topo, &d, &(struct compile_options){0}, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    return p;
}

/* Of two nodes one is lost: copies on the other serve, shards and stages are gone. */
static void test_lost(void)
{
    static const char says[] = "node 1 had a part of the state of model.layers.1.self_attn.q_proj.weight that no other node "
                               "has: go by way of a checkpoint (llmrun --resume)";
    struct arena *a = arena_new();
    struct transition *t = NULL;
    struct error error = {""};
    struct plan *copies = hosts_plan(a, 2, 2, "tp=2 dp=2 microbatch=1"), *stages = hosts_plan(a, 2, 2, "pp=2 dp=2 microbatch=1"),
                *shards = hosts_plan(a, 2, 2, "tp=2 dp=2 zero=1 microbatch=1"),
                *left = hosts_plan(a, 1, 2, "dp=2 zero=1 microbatch=1");
    expect_refused("a stage is lost", stages, left, 1, says);
    CU_ASSERT_EQUAL(transition_make(a, shards, left, 1, &t, &error), STATUS_NO_PLAN);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "node 1 had a part of the state of "));
    transition_close(t);
    CU_ASSERT_EQUAL(transition_make(a, copies, left, 0, &t, &error), STATUS_OK);
    CU_ASSERT_EQUAL(t->ranks->nranks, 2);
    CU_ASSERT_EQUAL(t->ranks->ranks[0].node, 1);
    CU_ASSERT_EQUAL(transition_prove(a, t)->nviolations, 0);
    transition_close(t);
    plan_close(copies);
    plan_close(stages);
    plan_close(shards);
    plan_close(left);
    arena_free(a);
}

/* ---- damaged folders ---- */

struct file {
    const char *path, *name;
    uint8_t *bytes;
    size_t size;
};
struct small {
    char dir[E2E_PATH + 32];
    struct plan *from, *to;
    struct file file[8]; /* MANIFEST last */
    uint32_t nfiles;
};

static void write_file(const struct file *f, const uint8_t *bytes, size_t size)
{
    FILE *out = fopen(f->path, "wb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(out);
    CU_ASSERT_EQUAL(fwrite(bytes, 1, size, out), size);
    CU_ASSERT_EQUAL(fclose(out), 0);
}

static void take_file(struct arena *a, struct small *s, const char *name)
{
    struct file *f = &s->file[s->nfiles++];
    f->name = name;
    f->path = arena_printf(a, "%s/%s", s->dir, name);
    FILE *in = fopen(f->path, "rb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(in);
    f->bytes = malloc(1 << 20);
    f->size = fread(f->bytes, 1, 1 << 20, in);
    fclose(in);
}

/* a transition of two roles at most */
static void open_small(struct arena *a, struct small *s)
{
    static const char *const names[] = {"transition.json", "ranks.bin", "programs/0.bin", "programs/1.bin", "MANIFEST"};
    char dir[E2E_PATH];
    struct transition *t;
    struct error error = {""};
    e2e_folder(dir, "damage");
    *s = (struct small){0};
    snprintf(s->dir, sizeof s->dir, "%s/t", dir);
    s->from = text_plan(a, usual, "dp=2 zero=1 microbatch=2");
    s->to = text_plan(a, usual, "tp=2 microbatch=2");
    CU_ASSERT_EQUAL_FATAL(transition_make(a, s->from, s->to, NONE, &t, &error), STATUS_OK);
    CU_ASSERT_EQUAL_FATAL(t->nroles, 2);
    CU_ASSERT_EQUAL_FATAL(transition_write(t, s->dir, false, &error), STATUS_OK);
    transition_close(t);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        take_file(a, s, names[i]);
}

static void close_small(struct small *s)
{
    for (uint32_t i = 0; i < s->nfiles; i++)
        free(s->file[i].bytes);
    plan_close(s->from);
    plan_close(s->to);
}

/* is the folder as it is now refused, with a sentence? */
static bool refused(const struct small *s)
{
    struct arena *a = arena_new();
    struct transition *t = NULL;
    struct error error = {""};
    enum status st = transition_read(a, s->dir, s->from, s->to, &t, &error);
    bool fine = st == STATUS_INPUT && *error.text;
    transition_close(t);
    arena_free(a);
    return fine;
}

/* every bit flipped, every shorter length, and the file missing */
static void damage_file(const struct small *s, const struct file *f, uint32_t step)
{
    uint32_t accepted = 0;
    uint8_t *bytes = malloc(f->size + 1);
    memcpy(bytes, f->bytes, f->size);
    for (size_t bit = 0; bit < 8 * f->size; bit += step) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        write_file(f, bytes, f->size);
        accepted += !refused(s);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t n = 0; n < f->size; n += step) {
        write_file(f, bytes, n);
        accepted += !refused(s);
    }
    remove(f->path);
    accepted += !refused(s);
    write_file(f, f->bytes, f->size);
    if (accepted)
        printf("\n    %s: %u damages are accepted", f->name, accepted);
    CU_ASSERT_EQUAL(accepted, 0);
    free(bytes);
}

static void test_damage(void)
{
    struct arena *a = arena_new();
    struct small s;
    open_small(a, &s);
    CU_ASSERT_FALSE(refused(&s));
    for (uint32_t i = 0; i < s.nfiles; i++)
        damage_file(&s, &s.file[i], test_draws(1, 0) && i < 2 ? 1 : 13);
    CU_ASSERT_FALSE(refused(&s));
    close_small(&s);
    arena_free(a);
}

/* MANIFEST for a file of other contents */
static void write_manifest(const struct small *s, const struct file *f, const uint8_t *bytes)
{
    const struct file *m = &s->file[s->nfiles - 1];
    char *text = malloc(m->size + 1), hex[65];
    memcpy(text, m->bytes, m->size);
    text[m->size] = 0;
    hash_sha256(bytes, f->size, hex);
    char *at = strstr(text, f->name);
    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    memcpy(at - 66, hex, 64);
    write_file(m, (const uint8_t *)text, m->size);
    free(text);
}

/* A folder that somebody altered and hashed again: refused, disproved, or the same on shadow memory. */
static bool harmless(const struct small *s, uint64_t *random)
{
    struct arena *a = arena_new();
    struct transition *t = NULL;
    struct error error = {""};
    bool fine = true;
    if (transition_read(a, s->dir, s->from, s->to, &t, &error) == STATUS_OK && !transition_prove(a, t)->nviolations) {
        struct shadow *shadow = shadow_new(t, NULL);
        const char *why = shadow_run(shadow, random);
        fine = !(why ? why : shadow_wrong(a, shadow));
        shadow_free(shadow);
    }
    transition_close(t);
    arena_free(a);
    return fine;
}

static void test_forged(void)
{
    struct arena *a = arena_new();
    struct small s;
    uint32_t harmful = 0, few = test_draws(1, 0) ? 1 : 11;
    uint64_t random = 1;
    open_small(a, &s);
    for (uint32_t i = 0; i + 1 < s.nfiles; i++) {
        struct file *f = &s.file[i];
        for (size_t bit = i; bit < 8 * f->size; bit += i < 2 ? few : 7 * few) {
            f->bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            write_file(f, f->bytes, f->size);
            write_manifest(&s, f, f->bytes);
            harmful += !harmless(&s, &random);
            f->bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        write_file(f, f->bytes, f->size);
    }
    CU_ASSERT_EQUAL(harmful, 0);
    close_small(&s);
    arena_free(a);
}

/* ---- as people meet it ---- */

#define PLAN "$L plan plans/tiny-llama/model.llm topologies/cpu8.xml -q --set tp=1 --set pp=1 "
static const struct {
    const char *command;
    int code;
    const char *says; /* on stderr; NULL: nothing */
} lines[] = {
    {PLAN "--set gpus=1 --set dp=1 -o $D/a && " PLAN "--set gpus=2 --set dp=2 -o $D/b", 0, NULL},
    {"$L transition $D/a", 2, "llmc: usage: llmc transition FROM TO -o DIR"},
    {"$L transition $D/a $D/b", 2, "llmc: transition wants -o DIR, or --check DIR\n"},
    {"$L transition $D/a $D/b -o $D/t --check $D/t", 2, "llmc: transition wants -o DIR, or --check DIR\n"},
    {"$L transition $D/a $D/b -o $D/t --lost 1", 2, "llmc: there is no node 1; the first plan's cluster has nodes 0 to 0\n"},
    {"$L transition $D/a $D/b -o $D/t --lost 4294967295", 2, "llmc: there is no node 4294967294; "},
    {"$L transition $D/a $D/b --check $D/t --lost 0", 2, "llmc: --lost goes with -o: the folder says which node is lost\n"},
    {"$L transition $D/a $D/b -o $D/t --lost x", 2, "llmc: --lost wants a number, not 'x'\n"},
    {"$L transition $D/a $D/no -o $D/t", 3,
     "/no/MANIFEST is missing: this is no plan folder ('llmc plan MODEL CLUSTER -o DIR' makes one)\n"},
    {"$L transition $D/a $D/b -o $D/t >/dev/null && $L transition $D/a $D/b --check $D/t", 0, NULL},
    {"$L transition $D/a $D/b -o $D/t >/dev/null", 0, NULL},
    {"$L transition $D/a $D/b -o $D/t --json | cmp - $D/t/transition.json", 0, NULL},
    {"$L transition $D/a $D/b --check $D/a", 3,
     "/a is no transition ('llmc transition PLAN PLAN -o DIR' makes one)\n"},
    {"$L transition $D/b $D/a --check $D/t", 3, "/t is for another first plan\n"},
    {"$L transition $D/a $D/a --check $D/t", 3, "/t is for another second plan\n"},
    {"cp -r $D/t $D/u && echo >>$D/u/ranks.bin && $L transition $D/a $D/b --check $D/u", 3,
     "/u/ranks.bin was changed after the plan was written (its hash differs from MANIFEST)\n"},
    {"sed -i 's/\"lost_node\": null/\"lost_node\": 7/' $D/t/transition.json && (cd $D/t && sha256sum transition.json ranks.bin "
     "programs/*.bin >MANIFEST) && $L transition $D/a $D/b --check $D/t", 3,
     "/t/transition.json: lost_node is no node of the first plan\n"},
    {"sed -i 's/\"lost_node\": 7/\"lost_node\": 0/' $D/t/transition.json && (cd $D/t && sha256sum transition.json ranks.bin "
     "programs/*.bin >MANIFEST) && $L transition $D/a $D/b --check $D/t | grep -q '^property 1: rank 0 of the old plan was on node 0, "
     "which is lost$'", 0, NULL},
    {PLAN "--set gpus=1 --set dp=1 --set 'memory=60MiB' --set 'microbatch=1 sequences' --set recompute=full -o $D/c && "
     "$L transition $D/a $D/c -o $D/v", 1,
     "llmc: rank 0 would hold 69.4MiB of both plans' state, and has 60MiB: go by way of a checkpoint (llmrun --resume)\n"},
    {"$L transition $D/a $D/b -o LICENSE/t", 4, "llmc: LICENSE/t cannot be made: LICENSE is no folder\n"},
};

static void test_commands(void)
{
    char dir[E2E_PATH], path[E2E_PATH + 32], text[4096];
    e2e_folder(dir, "commands");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        int code = e2e_shell(dir, lines[i].command);
        snprintf(path, sizeof path, "%s/stderr", dir);
        e2e_read_text(path, text, sizeof text);
        bool fine = code == lines[i].code && (lines[i].says ? strstr(text, lines[i].says) != NULL : !*text);
        if (!fine)
            printf("\n    %s: exit code %d, '%s'", lines[i].command, code, text);
        CU_ASSERT(fine);
    }
}

void suite_transition_refused(void);
void suite_transition_refused(void)
{
    CU_pSuite s = CU_add_suite("transition_refused", NULL, NULL);
    CU_add_test(s, "plans of different jobs", test_jobs);
    CU_add_test(s, "a lost node's state", test_lost);
    CU_add_test(s, "damaged folders", test_damage);
    CU_add_test(s, "folders altered and hashed again", test_forged);
    CU_add_test(s, "the command", test_commands);
}
