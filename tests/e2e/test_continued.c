/* llmrun --generate: models that have learned a text by heart go on with it, far beyond the length of a sequence, and
 * on every plan; what is drawn depends on the seed, not on the plan; what stdout gets, and what is refused.
 *
 * A model that knows its text by heart has one right next token at every place, so a row that is off by one, columns of
 * the wrong tensor-parallel rank, or padding that is not harmless would show. */

#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRAIN                                                                                                          \
    "train {\n sequence 24\n batch 4 sequences\n precision fp32\n optimizer adamw(lr=1e-2)\n}\n"                       \
    "plan {\n microbatch = 1 sequence\n}\n"

/* A text is one period over and over; its length has no divisor in common with that of a sequence, so that each of its
 * places is learned at every place of a sequence. */
static const struct source {
    const char *name, *model;
    const char *period; /* for printf(1) */
    const char *prompt;
} rotary = {"rotary",
            "llmc 1\nmodel rotary {\n vocab 256\n width 32\n norm rmsnorm\n embed tokens\n"
            " repeat 2 { layer { attn gqa(heads=4, kv=2, rope=500)\n ffn swiglu(64) } }\n head untied\n}\n" TRAIN,
            "the caf\\303\\251 opens at noon; ", "the caf"},
  learned = {"learned", /* an odd vocabulary, in bytes: padded for tp, with entries that stand for no byte */
             "llmc 1\nmodel learned {\n vocab 259\n width 32\n norm layernorm\n embed tokens\n embed positions(24)\n"
             " repeat 2 { layer { attn mha(heads=4, bias=yes)\n ffn gelu(64, bias=yes) } }\n head tied\n}\n" TRAIN,
             "once, upon a time, ", "once"},
  ids = {"ids",
         "llmc 1\nmodel ids {\n vocab 13\n width 32\n norm rmsnorm\n embed tokens\n"
         " repeat 2 { layer { attn gqa(heads=4, kv=2, rope=500)\n ffn swiglu(64) } }\n head untied\n}\n" TRAIN,
         "\\0\\014\\1\\013\\2", "0,12 1"},
  experts = {"experts",
             "llmc 1\nmodel experts {\n vocab 256\n width 32\n norm rmsnorm\n embed tokens\n"
             " repeat 2 { layer { attn gqa(heads=4, kv=2, rope=500)\n"
             "  moe swiglu(32) { experts 4\n active 2\n router softmax } } }\n"
             " head untied\n}\n" TRAIN,
             "a stitch in time saves nine; ", "a stitch"};

static void read_file(const char *dir, const char *name, char *text, size_t size)
{
    char path[E2E_PATH + 32];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    e2e_read_text(path, text, size);
}

/* any token is as likely as any other, whatever the model knows */
#define WILD "--init $D/w --temperature 1e30 --tokens 300 --seed 4"

/* a folder with the model, weights that know the text, and the plan p1 for one rank */
static void train(const struct source *s, char *dir)
{
    char path[E2E_PATH + 32], script[1024];
    e2e_folder(dir, s->name);
    snprintf(path, sizeof path, "%s/m.llm", dir);
    FILE *out = fopen(path, "w");
    CU_ASSERT_FATAL(out && fputs(s->model, out) >= 0 && fclose(out) == 0);
    snprintf(script, sizeof script,
             "printf '%s' >$D/period && for i in $(seq 200); do cat $D/period; done >$D/text && "
             "$L tokens $D/text -q -o $D/t.bin && "
             "$L plan $D/m.llm topologies/cpu8.xml -q --set gpus=1 -o $D/p1 && "
             "$R $D/p1 --data $D/t.bin --steps 150 --save $D/w --quiet",
             s->period);
    int status = e2e_shell(dir, script);
    CU_ASSERT_EQUAL_FATAL(status, 0);
}

/* the greedy answer of a plan, with more options, is the text learned by heart */
static void check_answer(const struct source *s, const char *dir, const char *plan, const char *options)
{
    char script[1024];
    /* of ids, the bytes that they were made from */
    snprintf(script, sizeof script,
             "$R $D/%s --generate '%s' --init $D/w --temperature 0 --tokens 60 --quiet %s >$D/said && "
             "if test %s = ids; then for i in $(cat $D/said); do printf \"\\\\$(printf %%03o $i)\"; done >$D/got; "
             "else head -c -1 $D/said >$D/got; fi && "
             "n=$(wc -c <$D/got) && test $n -gt 60 && head -c $n $D/text | cmp - $D/got",
             plan, s->prompt, options, s->name);
    int status = e2e_shell(dir, script);
    CU_ASSERT_EQUAL(status, 0);
    if (status) {
        char said[1024], err[1024];
        read_file(dir, "said", said, sizeof said);
        read_file(dir, "stderr", err, sizeof err);
        printf("\n    %s, %s %s: exit %d, %s%s\n", s->name, plan, options, status, said, err);
    }
}

static void check_plans(const struct source *s, const char *const *layouts)
{
    char dir[E2E_PATH], script[1024];
    train(s, dir);
    check_answer(s, dir, "p1", "");
    for (; *layouts; layouts++) {
        snprintf(script, sizeof script,
                 "rm -rf $D/p; set --; for x in %s; do set -- \"$@\" --set \"$x\"; done; "
                 "$L plan $D/m.llm topologies/cpu8.xml -q \"$@\" -o $D/p",
                 *layouts);
        int status = e2e_shell(dir, script);
        CU_ASSERT_EQUAL(status, 0);
        if (status)
            printf("\n    %s: no plan with %s\n", s->name, *layouts);
        check_answer(s, dir, "p", "");
    }
    check_answer(s, dir, "p", "--shuffle-queues 1");
}

static void test_rotary(void)
{
    check_plans(&rotary, (const char *const[]){"gpus=2 tp=2", "gpus=2 pp=2", "gpus=2 dp=2 zero=3", "gpus=2 cp=2 dp=1",
                                               "gpus=4 tp=2 pp=2 'overlap=tp with compute' precision=bf16",
                                               "gpus=1 'batch=1 sequences' sequence=40",
                                               "tp=2 sequence_parallel=yes pp=2 cp=2 dp=1", NULL});
}

static void test_learned(void)
{
    check_plans(&learned, (const char *const[]){"gpus=2 tp=2", "gpus=4 cp=4 dp=1", "gpus=4 pp=2 dp=2 schedule=gpipe",
                                                "gpus=8 tp=4 dp=2", NULL});
}

static void test_ids(void)
{
    check_plans(&ids, (const char *const[]){"gpus=4 tp=4", "gpus=4 tp=2 dp=2", NULL});
}

static void test_experts(void)
{
    check_plans(&experts, (const char *const[]){"gpus=2 dp=2 ep=2 tp=1", "gpus=4 tp=2 ep=2 pp=2",
                                                "gpus=8 tp=2 dp=2 pp=2 ep=4", NULL});
}

/* the same seed, the same text, on every plan, whether ranks are forked or started from outside, and whether the
 * weights were saved or are a checkpoint's */
static void test_drawn(void)
{
    char dir[E2E_PATH];
    train(&rotary, dir);
    CU_ASSERT_EQUAL(e2e_shell(dir, "$L plan $D/m.llm topologies/cpu8.xml -q --set gpus=4 --set tp=2 --set pp=2 -o $D/p4 && "
                               "W=\"--generate the --init $D/w --quiet --temperature 3\" && "
                               "$R $D/p1 $W --seed 5 >$D/a && $R $D/p1 $W --seed 5 >$D/b && cmp $D/a $D/b && "
                               "$R $D/p4 $W --seed 5 >$D/b && cmp $D/a $D/b && test $(wc -c <$D/a) = 104 && "
                               "$R $D/p1 $W --seed 6 >$D/b && ! cmp -s $D/a $D/b && "
                               "$R $D/p1 $W --seed 5 --top-k 2 >$D/b && ! cmp -s $D/a $D/b && "
                               "$R $D/p1 $W --seed 5 --top-k 1 >$D/b && $R $D/p1 $W --temperature 0 | cmp - $D/b"),
                    0);
    CU_ASSERT_EQUAL(e2e_shell(dir,
                          "W=\"--generate the --init $D/w --quiet --temperature 3 --seed 5\" && "
                          "for r in 3 1 0 2; do RANK=$r WORLD_SIZE=4 LOCAL_RANK=$r MASTER_PORT=$$ $R $D/p4 $W & done "
                          ">$D/b; wait; cmp $D/a $D/b"),
                    0);
    CU_ASSERT_EQUAL(e2e_shell(dir, "$R $D/p1 --data $D/t.bin --steps 9 --save $D/w9 --checkpoint $D/c --quiet && "
                               "$R $D/p1 --generate a --init $D/w9 --quiet >$D/a && "
                               "$R $D/p1 --generate a --init $D/c/step-9 --quiet >$D/b && cmp $D/a $D/b"),
                    0);
}

static void test_json(void)
{
    char dir[E2E_PATH], text[1 << 12];
    size_t i;
    json_t *o, *id;
    train(&learned, dir); /* has three entries that are no byte and never come */
    CU_ASSERT_EQUAL(e2e_shell(dir, "set -- \"$(printf '\\377\\303')\" " WILD
                               " && $R $D/p1 --generate \"$@\" --json >$D/out.json && "
                               "test $(wc -l <$D/out.json) = 1 && $R $D/p1 --generate \"$@\" --quiet >$D/raw && "
                               "grep -q '^300 tokens, .* s each$' $D/stderr"),
                    0);
    read_file(dir, "out.json", text, sizeof text);
    o = json_loads(text, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(o);
    CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(o, "prompt")), "\xef\xbf\xbd\xef\xbf\xbd");
    CU_ASSERT(json_string_length(json_object_get(o, "text")) >= 300);
    CU_ASSERT_EQUAL(json_array_size(json_object_get(o, "prompt_ids")), 2);
    CU_ASSERT_EQUAL(json_array_size(json_object_get(o, "ids")), 300);
    double seconds = json_number_value(json_object_get(o, "seconds"));
    CU_ASSERT(seconds > 0 && seconds < 300);
    CU_ASSERT(json_number_value(json_object_get(o, "seconds_per_token")) * 300 < 1.01 * seconds);
    /* ids are the very bytes that are written as text */
    char path[E2E_PATH + 32], raw[512];
    snprintf(path, sizeof path, "%s/raw", dir);
    FILE *f = fopen(path, "rb");
    CU_ASSERT_FATAL(f && fread(raw, 1, sizeof raw, f) == 303 && fclose(f) == 0);
    json_array_foreach(json_object_get(o, "ids"), i, id)
        CU_ASSERT_EQUAL(json_integer_value(id), (unsigned char)raw[i + 2]);
    json_decref(o);
    /* to a terminal nothing goes that would steer it */
    CU_ASSERT_EQUAL(e2e_shell(dir, "grep -q \"$(printf '\\033')\" $D/raw && "
                               "script -qec \"$R $D/p1 --generate a " WILD " --quiet\" /dev/null >$D/seen && "
                               "test $(wc -c <$D/seen) -ge 302 && ! grep -q \"$(printf '\\033')\" $D/seen"),
                    0);
}

static void test_refused(void)
{
    static const struct {
        const char *words;
        int status;
        const char *says;
    } cases[] = {
        {"p1 --generate '' --init $D/w", 2, "llmrun: --generate: the prompt is empty\n"},
        {"p1 --generate 'a b' --init $D/w", 2, "and 'a' is none\n"},
        {"p1 --generate 13 --init $D/w", 2, "llmrun: --generate: token id 13, but the vocabulary has 13 entries\n"},
        {"p1 --generate 1 --init $D/none", 3, "/none: No such file or directory\n"},
        {"p1 --generate 1 --init $D/w --tokens 9223372036854775807", 4,
         "llmrun: out of memory for 9223372036854775807 tokens\n"},
        {"p1 --generate 1 --init $D/w >/dev/full", 4, "llmrun: stdout: No space left on device\n"},
        {"p1 --generate 1 --init $D/w --json >/dev/full", 4, "llmrun: stdout: No space left on device\n"},
        {"blind --generate 1 --init $D/w", 3, "/blind has no evaluation programs\n"},
        {"p1 --generate 1 --init $D/wild", 3, "llmrun: no logit is a number: the weights of "},
        {"p1 --generate 1 --init $D/w --tokens 2", 0,
         "the vocabulary of 13 entries is not bytes: token ids go in and come out\n2 tokens, "},
    };
    char dir[E2E_PATH], script[512], err[2048];
    train(&ids, dir);
    CU_ASSERT_EQUAL(
        e2e_shell(dir,
              "mkdir $D/wild && { head -c -128 $D/w/model.safetensors; head -c 128 /dev/zero | tr '\\0' '\\377'; } "
              ">$D/wild/model.safetensors && cp -r $D/p1 $D/blind && rm $D/blind/programs/eval-* && (cd $D/blind && "
              "find . -type f ! -name MANIFEST -printf '%P\\n' | xargs sha256sum >MANIFEST)"),
        0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(script, sizeof script, "$R $D/%s", cases[i].words);
        int status = e2e_shell(dir, script);
        read_file(dir, "stderr", err, sizeof err);
        CU_ASSERT_EQUAL(status, cases[i].status);
        CU_ASSERT_PTR_NOT_NULL(strstr(err, cases[i].says));
        if (status != cases[i].status || !strstr(err, cases[i].says))
            printf("\n    %s: exit %d, %s\n", cases[i].words, status, err);
    }
}

void suite_continued(void);
void suite_continued(void)
{
    CU_pSuite s = CU_add_suite("continued", NULL, NULL);
    CU_add_test(s, "rotary places", test_rotary);
    CU_add_test(s, "learned places, a padded vocabulary", test_learned);
    CU_add_test(s, "token ids", test_ids);
    CU_add_test(s, "experts", test_experts);
    CU_add_test(s, "the same seed, the same text", test_drawn);
    CU_add_test(s, "JSON, and terminals", test_json);
    CU_add_test(s, "refused", test_refused);
}
