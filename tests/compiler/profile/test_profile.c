/* Profiles: those that come with the compiler, the text form, and what it refuses. */

#include "compiler/profile/profile.h"

#include <CUnit/Basic.h>
#include <string.h>

static void test_builtin(void)
{
    size_t nparams, n = 0;
    const struct profile_param *params = profile_params(&nparams);
    for (; profile_name(n); n++) {
        struct profile p;
        CU_ASSERT_FATAL(profile_find(&p, profile_name(n)));
        for (size_t i = 0; i < nparams; i++)
            CU_ASSERT(*PROFILE_PARAM(&p, &params[i]) >= params[i].low &&
                      *PROFILE_PARAM(&p, &params[i]) <= params[i].high);
    }
    CU_ASSERT(n >= 4);
    struct profile p;
    CU_ASSERT(!profile_find(&p, "megatron"));
    CU_ASSERT_PTR_NULL(profile_param("matmul"));
}

static void test_text(void)
{
    static const char text[] = "# a stack\n\n  straggle 0.01 # per doubling\r\ntp_shown\t0.25\ntp_shown 0.5";
    struct profile p;
    unsigned line;
    const char *why = "";
    CU_ASSERT_FATAL(profile_parse(&p, text, strlen(text), &line, &why));
    CU_ASSERT_EQUAL(p.straggle, 0.01);
    CU_ASSERT_EQUAL(p.tp_shown, 0.5);
    CU_ASSERT_EQUAL(p.matmul_sm90, profile_param("matmul_sm90")->value);
}

static void test_adjust(void)
{
    struct profile p;
    CU_ASSERT_FATAL(profile_find(&p, "megatron-2022"));
    double other = p.host_op_us;
    const struct profile_adjust adjusts[] = {{profile_param("straggle"), 0.05}, {profile_param("launches_block"), 1}};
    profile_adjust(&p, adjusts, 2);
    CU_ASSERT_EQUAL(p.straggle, 0.05);
    CU_ASSERT_EQUAL(p.launches_block, 1);
    CU_ASSERT_EQUAL(p.host_op_us, other);
}

static void test_refused(void)
{
    static const struct {
        const char *text;
        size_t size; /* 0: up to the NUL */
        unsigned line;
        const char *why;
    } cases[] = {
        {"straggle 0.01\nmatmul 1\n", 0, 2, "unknown parameter"},
        {"straggle\n", 0, 1, "a parameter needs one number"},
        {"straggle 0.01x\n", 0, 1, "a parameter needs one number"},
        {"straggle 0.01 0.02\n", 0, 1, "a parameter needs one number"},
        {"straggle 0.06\n", 0, 1, "value outside the parameter's bounds"},
        {"straggle -1\n", 0, 1, "value outside the parameter's bounds"},
        {"straggle nan\n", 0, 1, "value outside the parameter's bounds"},
        {"straggle 0.01\0\n", 15, 1, "line too long or not text"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct profile p;
        unsigned line = 0;
        const char *why = "";
        CU_ASSERT(!profile_parse(&p, cases[i].text, cases[i].size ? cases[i].size : strlen(cases[i].text),
                                 &line, &why));
        CU_ASSERT_EQUAL(line, cases[i].line);
        CU_ASSERT_STRING_EQUAL(why, cases[i].why);
    }
    char longer[400];
    memset(longer, '#', sizeof longer);
    struct profile p;
    unsigned line;
    const char *why = "";
    CU_ASSERT(!profile_parse(&p, longer, sizeof longer, &line, &why));
    CU_ASSERT_STRING_EQUAL(why, "line too long or not text");
}

void suite_profile(void);
void suite_profile(void)
{
    CU_pSuite s = CU_add_suite("profile", NULL, NULL);
    CU_add_test(s, "those that come with the compiler", test_builtin);
    CU_add_test(s, "text form", test_text);
    CU_add_test(s, "what is adjusted", test_adjust);
    CU_add_test(s, "what is refused", test_refused);
}
