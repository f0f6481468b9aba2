/* What `llmc plan` says of a faster layout that no plan can be written of: queries that are normalised over
 * all heads cannot be split, and with one layer and one sequence a step there is nothing else to split.  The
 * share is held against the two estimates themselves. */

#include "compiler/llmc.h"
#include "compiler/model/sema.h"
#include "compiler/search/search.h"
#include "tests/e2e/e2e.h"
#include "tests/e2e/forge.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <string.h>

void suite_left_out(void);

/* clang-format off */
static const char model[] =
    "llmc 1\nmodel tiny {\n    vocab 256\n    width 512\n    norm rmsnorm\n    embed tokens\n"
    "    layer {\n        attn gqa(heads=8, kv=4, qk_norm=%s, rope=10_000)\n        ffn swiglu(1024)\n    }\n"
    "    head untied\n}\n"
    "train {\n    sequence 512\n    batch 1 sequences\n    precision fp32\n    optimizer adamw(lr=1e-3)\n}\n"
    "plan {\n    cp = 1\n}\n";
/* clang-format on */

#define CLUSTER "topologies/cpu8.xml"

static double step_s(struct arena *a, const char *path, bool emit_only)
{
    struct diag *d = diag_new(a);
    struct job *job = job_read(a, d, path, NULL, 0);
    struct topo *topo = topo_read(a, d, CLUSTER);
    CU_ASSERT_FATAL(job && topo);
    struct search_result *r = search(a, d, job, topo, 1, 0, emit_only);
    CU_ASSERT_EQUAL_FATAL(r->ncandidates, 1);
    CU_ASSERT_EQUAL(r->candidates[0].emittable, emit_only);
    return r->candidates[0].estimate.step_time_s;
}

static void plan(struct arena *a, const char *root, const char *norm, char *said, size_t size)
{
    const char *path = arena_printf(a, "%s/%s.llm", root, norm),
               *log = arena_printf(a, "%s/%s.log", root, norm);
    forge_text(path, arena_printf(a, model, norm));
    CU_ASSERT_EQUAL(e2e_command(log, "%s/llmc plan %s %s -o %s/%s", e2e_build(), path, CLUSTER, root, norm),
                    0);
    e2e_read_text(log, said, size);
}

static void test_share(void)
{
    struct arena *a = arena_new();
    char root[E2E_PATH], said[8192], rest[64] = "";
    double share = -1;
    e2e_folder(root, "left-out");
    plan(a, root, "full", said, sizeof said);
    const char *at = strstr(said, "left out: tp "), *path = arena_printf(a, "%s/full.llm", root);
    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    at = strchr(at, '\n');
    CU_ASSERT_EQUAL(sscanf(at, " would be %lf %% faster by the same estimate, but tp = %*d with queries %63s",
                           &share, rest),
                    2);
    double chosen = step_s(a, path, true), best = step_s(a, path, false);
    CU_ASSERT(chosen > best);
    CU_ASSERT_DOUBLE_EQUAL(share, 100 * (chosen / best - 1), 0.0501);
    CU_ASSERT_STRING_EQUAL(rest, "normalised");
    plan(a, root, "head", said, sizeof said);
    CU_ASSERT_PTR_NULL(strstr(said, "left out"));
    arena_free(a);
}

void suite_left_out(void)
{
    CU_pSuite s = CU_add_suite("left_out", NULL, NULL);
    CU_add_test(s, "a faster layout that cannot be written", test_share);
}
