/* What programs carry beside their instructions: every field of the job and of the tables of weights is compared.
 *
 * A field of the evaluation program is changed by one bit, and the property must say so; changed back, it must say nothing. */

#include "compiler/support/vec.h"
#include "compiler/verify/verify.h"
#include "tests/compiler/random_plan.h"

#include <CUnit/CUnit.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char job[] =
    "llmc 1\nmodel m {\n    vocab 24\n    width 16\n    norm rmsnorm\n    embed tokens\n    layer {\n"
    "        attn gqa(heads=4, kv=2, head=4)\n        moe swiglu(8) {\n experts 4\n active 2\n router softmax\n }\n    }\n"
    "    head untied\n}\ntrain {\n    sequence 8\n    batch 4 sequences\n    precision fp32\n    optimizer adamw(lr=1e-3)\n"
    "    clip 1.0\n}\n";

struct field {
    const char *name;
    size_t at;
};
#define FIELD(type, name) {#name, offsetof(struct type, name)}

static const struct field job_fields[] = {
    FIELD(job_info, sequence),    FIELD(job_info, batch),     FIELD(job_info, vocab),     FIELD(job_info, seed),
    FIELD(job_info, steps_total), FIELD(job_info, optimizer), FIELD(job_info, lr_kind),   FIELD(job_info, lr),
    FIELD(job_info, lr_min),      FIELD(job_info, beta1),     FIELD(job_info, beta2),     FIELD(job_info, lr_warmup),
    FIELD(job_info, lr_decay),    FIELD(job_info, lr_stable), FIELD(job_info, tokens_per_step),
};
static const struct field bucket_fields[] = { /* evaluation saves nothing: no count_slot */
    FIELD(bucket, name), FIELD(bucket, elements), FIELD(bucket, tensor), FIELD(bucket, ntensors), FIELD(bucket, decay),
};
static const struct field tensor_fields[] = {
    FIELD(tensor, name),     FIELD(tensor, ndim),       FIELD(tensor, shape[0]),    FIELD(tensor, shape[1]),
    FIELD(tensor, row),      FIELD(tensor, col),        FIELD(tensor, rows),        FIELD(tensor, cols),
    FIELD(tensor, row_slot), FIELD(tensor, col_slot),   FIELD(tensor, row_stride),  FIELD(tensor, col_stride),
    FIELD(tensor, at),       FIELD(tensor, transposed), FIELD(tensor, init),        FIELD(tensor, std),
    FIELD(tensor, family),   FIELD(tensor, member),     FIELD(tensor, boxes),       FIELD(tensor, member_slot),
    FIELD(tensor, member_stride),
};

static bool says(const struct plan *p, const char *message)
{
    struct arena *a = arena_new();
    struct verdict v = {0};
    verify_job_tables(a, p, &v);
    bool said = v.nviolations == 1 && strstr(v.violations[0].message, message);
    bool silent = !v.nviolations && !message[0];
    arena_free(a);
    return said || silent;
}

static void test_fields(const struct plan *p, void *of, const struct field *fields, size_t n, const char *message)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char *byte = (unsigned char *)of + fields[i].at;
        *byte ^= 1;
        bool said = says(p, message);
        *byte ^= 1;
        CU_ASSERT(said);
        CU_ASSERT(says(p, ""));
        if (!said)
            printf("\n    %s is not compared", fields[i].name);
    }
}

static void test_carried(void)
{
    struct arena *a = arena_new();
    struct plan *p = text_plan(a, job, "dp=2 ep=2 microbatch=1");
    struct program *e = p->eval[0];
    test_fields(p, &e->job, job_fields, ARRAY_LEN(job_fields), "the job in its header is not the model file's");
    test_fields(p, &e->buckets[0], bucket_fields, ARRAY_LEN(bucket_fields), " is not the training program's");
    test_fields(p, &e->tensors[0], tensor_fields, ARRAY_LEN(tensor_fields), " is not the training program's");
    e->nbuckets--;
    CU_ASSERT(says(p, "its tables of weights are not the training program's"));
    e->nbuckets++;
    e->ntensors--;
    CU_ASSERT(says(p, "its tables of weights are not the training program's"));
    e->ntensors++;
    CU_ASSERT(says(p, ""));
    plan_close(p);
    arena_free(a);
}

void suite_job_tables(void);
void suite_job_tables(void)
{
    CU_pSuite s = CU_add_suite("job_tables", NULL, NULL);
    CU_add_test(s, "every field of the job and of the tables of weights", test_carried);
}
