/* Prompts as bytes and as ids, how the next token is chosen, and text that JSON can hold. */

#include "runtime/generate.h"

#include <CUnit/CUnit.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void test_bytes(void)
{
    static const uint64_t vocabularies[] = {256, 257, PROMPT_BYTES_MOST};
    struct error error = {""};
    struct prompt p;
    for (size_t i = 0; i < sizeof vocabularies / sizeof *vocabularies; i++) {
        CU_ASSERT_EQUAL_FATAL(prompt_read("1, \xff", vocabularies[i], 2, &p, &error), STATUS_OK);
        CU_ASSERT(p.bytes && p.n == 4 && p.end == 6);
        CU_ASSERT(p.ids[0] == '1' && p.ids[1] == ',' && p.ids[2] == ' ' && p.ids[3] == 255);
        p.ids[5] = 1; /* there is room for it */
        free(p.ids);
    }
    CU_ASSERT_EQUAL(prompt_read("", 256, 1, &p, &error), STATUS_USAGE);
    CU_ASSERT_STRING_EQUAL(error.text, "--generate: the prompt is empty");
    free(p.ids);
}

static void test_ids(void)
{
    static const uint64_t vocabularies[] = {255, PROMPT_BYTES_MOST + 1};
    struct error error = {""};
    struct prompt p;
    for (size_t i = 0; i < sizeof vocabularies / sizeof *vocabularies; i++) {
        CU_ASSERT_EQUAL_FATAL(prompt_read(" 3,254 , 0\n007", vocabularies[i], 3, &p, &error), STATUS_OK);
        CU_ASSERT(!p.bytes && p.n == 4 && p.end == 7);
        CU_ASSERT(p.ids[0] == 3 && p.ids[1] == 254 && p.ids[2] == 0 && p.ids[3] == 7);
        free(p.ids);
    }
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"12 the 3",
         "--generate: a vocabulary of 50 entries is not bytes, so that the prompt is token ids between commas or "
         "spaces, and 'the' is none"},
        {"1,-2",
         "--generate: a vocabulary of 50 entries is not bytes, so that the prompt is token ids between commas or "
         "spaces, and '-2' is none"},
        {"49 50", "--generate: token id 50, but the vocabulary has 50 entries"},
        {"18446744073709551617", "--generate: token id 18446744073709551617, but the vocabulary has 50 entries"},
        {" , ", "--generate: the prompt is empty"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CU_ASSERT_EQUAL(prompt_read(bad[i].text, 50, 1, &p, &error), STATUS_USAGE);
        CU_ASSERT_STRING_EQUAL(error.text, bad[i].says);
        free(p.ids);
    }
}

static void test_greedy(void)
{
    float scratch[4];
    const struct sampling s = {.top_k = 2, .seed = 7};
    const float last[] = {-3, -2, -INFINITY, -1}, tie[] = {1, 5, 5, 0}, holes[] = {NAN, -9, NAN, -8};
    const float none[] = {NAN, NAN, -INFINITY, NAN};
    CU_ASSERT_EQUAL(sampling_choose(&s, last, 4, 0, scratch), 3);
    CU_ASSERT_EQUAL(sampling_choose(&s, last, 3, 0, scratch), 1);
    CU_ASSERT_EQUAL(sampling_choose(&s, tie, 4, 0, scratch), 1);
    CU_ASSERT_EQUAL(sampling_choose(&s, holes, 4, 0, scratch), 3);
    CU_ASSERT_EQUAL(sampling_choose(&s, none, 4, 0, scratch), UINT32_MAX);
}

enum { N = 5, DRAWS = 20000 };

static void draw(const struct sampling *s, const float *logits, double share[N])
{
    float scratch[N];
    memset(share, 0, N * sizeof *share);
    for (uint64_t place = 0; place < DRAWS; place++) {
        uint32_t id = sampling_choose(s, logits, N, place, scratch);
        CU_ASSERT_FATAL(id < N);
        share[id] += 1.0 / DRAWS;
    }
}

/* each id comes as often as softmax(logits / T), over the k likeliest, says: within four standard deviations */
static void test_frequencies(void)
{
    static const float logits[N] = {0.5f, -1, 2, NAN, 1.5f};
    static const struct {
        struct sampling s;
        double least; /* the smallest logit that takes part */
    } cases[] = {{{1, 0, 1}, -1},  {{0.5, 0, 2}, -1}, {{3, 0, 1ull << 40}, -1}, {{1, 4, 3}, -1},
                 {{1, 3, 3}, 0.5}, {{2, 2, 4}, 1.5},  {{5, 1, 5}, 2},           {{1, 900, 6}, -1}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        double share[N], sum = 0;
        for (size_t i = 0; i < N; i++)
            sum += (double)logits[i] >= cases[c].least ? exp((double)logits[i] / cases[c].s.temperature) : 0;
        draw(&cases[c].s, logits, share);
        for (size_t i = 0; i < N; i++) {
            bool in = (double)logits[i] >= cases[c].least;
            double want = in ? exp((double)logits[i] / cases[c].s.temperature) / sum : 0;
            bool fine = fabs(share[i] - want) <= 4 * sqrt(want * (1 - want) / DRAWS) + 1e-9;
            CU_ASSERT(fine);
            if (!fine)
                printf("\n    case %zu, id %zu: %.4f of the draws, wanted %.4f", c, i, share[i], want);
        }
    }
}

/* the same seed and place give the same token, another seed or another place other ones */
static void test_seeds(void)
{
    static const float logits[N] = {0};
    float scratch[N];
    const struct sampling a = {1, 0, 1}, b = {1, 0, 2}, high = {1, 0, 1ull << 32 | 1};
    unsigned same = 0, other = 0, above = 0, next = 0;
    for (uint64_t place = 0; place < 1000; place++) {
        uint32_t id = sampling_choose(&a, logits, N, place, scratch);
        same += sampling_choose(&a, logits, N, place, scratch) == id;
        other += sampling_choose(&b, logits, N, place, scratch) == id;
        above += sampling_choose(&high, logits, N, place, scratch) == id;
        next += sampling_choose(&a, logits, N, place + 1, scratch) == id;
    }
    CU_ASSERT_EQUAL(same, 1000);
    CU_ASSERT(other > 140 && other < 260 && above > 140 && above < 260 && next > 140 && next < 260); /* a fifth */
}

/* one character or none, its length, as jansson sees it, too */
static void check_utf8(const char *bytes, size_t n, const char *want)
{
    char out[64];
    size_t size = generate_utf8((const uint8_t *)bytes, n, out);
    CU_ASSERT_EQUAL(size, strlen(want));
    CU_ASSERT(size == strlen(want) && !memcmp(out, want, size));
    json_t *string = json_stringn(out, size);
    CU_ASSERT_PTR_NOT_NULL(string);
    json_decref(string);
}

#define NO "\xef\xbf\xbd"

static void test_utf8(void)
{
    static const char *const cases[][2] = {
        {"plain \n", "plain \n"},
        {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x88", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x88"},
        {"a\xff\x80z", "a" NO NO "z"},
        {"\xc3", NO},
        {"\xe2\x82", NO NO},
        {"\xf0\x9f\x90", NO NO NO},
        {"\xc3(", NO "("},
        {"\xc0\xaf", NO NO}, /* detours */
        {"\xe0\x9f\xbf", NO NO NO},
        {"\xf0\x8f\xbf\xbf", NO NO NO NO},
        {"\xed\xa0\x80", NO NO NO}, /* a surrogate */
        {"\xed\x9f\xbf", "\xed\x9f\xbf"},
        {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
        {"\xf4\x90\x80\x80", NO NO NO NO}, /* too large */
        {"\xf5\x80\x80\x80", NO NO NO NO},
        {"\xe2\x82(\xe2(", NO NO "(" NO "("},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_utf8(cases[i][0], strlen(cases[i][0]), cases[i][1]);
    char out[16];
    CU_ASSERT(generate_utf8((const uint8_t *)"a\0b", 3, out) == 3 && !memcmp(out, "a\0b", 3));
    CU_ASSERT_EQUAL(generate_utf8(NULL, 0, out), 0);
}

void suite_generate(void);
void suite_generate(void)
{
    CU_pSuite s = CU_add_suite("generate", NULL, NULL);
    CU_add_test(s, "prompts of bytes", test_bytes);
    CU_add_test(s, "prompts of ids", test_ids);
    CU_add_test(s, "the likeliest token", test_greedy);
    CU_add_test(s, "how often each token comes", test_frequencies);
    CU_add_test(s, "seeds and places", test_seeds);
    CU_add_test(s, "bytes as UTF-8", test_utf8);
}
