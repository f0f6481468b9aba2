/* The instruction table, its hashes and its manual: properties of every row. */

#include "compiler/inspect/manual.h"
#include "compiler/support/strbuf.h"
#include "runtime/hash.h"
#include "runtime/isa.h"

#include <CUnit/Basic.h>
#include <stdlib.h>
#include <string.h>

void suite_isa(void);

static void test_rows(void)
{
    for (enum op i = 0; i < NOPS; i++) {
        const struct isa_info *info = isa_info(i);
        enum op found = NOPS;
        CU_ASSERT_PTR_NOT_NULL_FATAL(info);
        CU_ASSERT(isa_find(info->name, &found));
        CU_ASSERT_EQUAL(found, i);
        CU_ASSERT(info->noperands >= 1 && info->noperands <= ISA_MAX_OPERANDS);
        CU_ASSERT(info->nattrs <= ISA_MAX_ATTRS);
        CU_ASSERT_PTR_NULL(info->attr[info->nattrs].name);
        CU_ASSERT(*info->meaning != 0);
        bool required = false;
        for (unsigned k = 0; k < info->noperands; k++) {
            const struct isa_operand *o = &info->operand[k];
            CU_ASSERT(*o->name && *o->rows && *o->cols && o->mark != MARK_NONE);
            CU_ASSERT_PTR_NOT_NULL(strchr("CGFIDA", o->dtype));
            required |= !o->optional;
            for (unsigned j = 0; j < k; j++)
                CU_ASSERT(strcmp(o->name, info->operand[j].name) != 0);
        }
        CU_ASSERT(required);
        for (unsigned k = 0; k < info->nattrs; k++)
            for (unsigned j = 0; j < k; j++)
                CU_ASSERT(strcmp(info->attr[k].name, info->attr[j].name) != 0);
    }
    enum op op;
    CU_ASSERT_PTR_NULL(isa_info(NOPS));
    CU_ASSERT(!isa_find("GEMM", &op));
    CU_ASSERT(!isa_find("", &op));
}

/* the macros that index operands and attributes agree with the table */
static void test_indices(void)
{
    CU_ASSERT_STRING_EQUAL(isa_info(OP_RMSNORM)->operand[OPND(RMSNORM, rstd)].name, "rstd");
    CU_ASSERT_STRING_EQUAL(isa_info(OP_ADAMW)->operand[OPND(ADAMW, step)].name, "step");
    CU_ASSERT_STRING_EQUAL(isa_info(OP_ROPE)->attr[ATTR(ROPE, original)].name, "original");
    CU_ASSERT_EQUAL(OPND(MATMUL_NT, bias), 3);
    CU_ASSERT_EQUAL(ATTR(ROPE, head), 0);
}

static void test_queues(void)
{
    for (enum op i = 0; i < NOPS; i++) {
        const struct isa_info *info = isa_info(i);
        unsigned legal = 0;
        for (unsigned q = 0; q <= NQUEUES; q++)
            legal |= (unsigned)isa_queue_legal(i, (enum queue)q) << q;
        if (info->queue == QUEUE_ANY)
            CU_ASSERT_EQUAL(legal, 1u << QUEUE_COMPUTE | 1u << QUEUE_TP | 1u << QUEUE_DP)
        else
            CU_ASSERT_EQUAL(legal, 1u << info->queue |
                                       (i == OP_COPY ? 1u << QUEUE_COPY : 0)); /* to and from the host */
    }
    CU_ASSERT(!isa_queue_legal(NOPS, QUEUE_COMPUTE));
    CU_ASSERT_STRING_EQUAL(isa_queue_name(QUEUE_RECV), "recv");
    CU_ASSERT_STRING_EQUAL(isa_queue_name((enum queue)99), "?");
    CU_ASSERT_STRING_EQUAL(isa_unit_name(UNIT_P2P), "p2p");
    CU_ASSERT_STRING_EQUAL(isa_dtype_name(DTYPE_BF16), "bf16");
    CU_ASSERT_EQUAL(isa_dtype_bytes(DTYPE_BF16), 2);
    CU_ASSERT_STRING_EQUAL(isa_dtype_name(DTYPE_F16), "f16");
    CU_ASSERT_EQUAL(isa_dtype_bytes(DTYPE_F16), 2);
    CU_ASSERT_EQUAL(isa_dtype_bytes(DTYPE_F64), 8);
    CU_ASSERT_EQUAL(isa_dtype_bytes(NDTYPES), 0);
}

static void test_fingerprint(void)
{
    CU_ASSERT(isa_fingerprint() != 0);
    CU_ASSERT_EQUAL(isa_fingerprint(), isa_fingerprint());
}

/* values of the XXH64 specification's reference and of FIPS 180-4's examples */
static void test_hashes(void)
{
    char hex[65], long_hex[65];
    CU_ASSERT_EQUAL(hash64("", 0, 0), 0xEF46DB3751D8E999u);
    CU_ASSERT_EQUAL(hash64("a", 1, 0), 0xD24EC4F1A98C6E5Bu);
    CU_ASSERT_EQUAL(hash64("abc", 3, 0), 0x44BC2CF5AD770999u);
    hash_sha256("", 0, hex);
    CU_ASSERT_STRING_EQUAL(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    hash_sha256("abc", 3, hex);
    CU_ASSERT_STRING_EQUAL(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    hash_sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, hex);
    CU_ASSERT_STRING_EQUAL(hex, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");

    struct sha256 s;
    unsigned char data[1000];
    for (unsigned i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 7);
    for (size_t n = 0; n < 300; n++) {
        hash_sha256(data, n, long_hex);
        sha256_start(&s);
        for (size_t at = 0, step = 1; at < n; at += step, step = step % 70 + 1)
            sha256_add(&s, data + at, step < n - at ? step : n - at);
        sha256_finish(&s, hex);
        CU_ASSERT_STRING_EQUAL(hex, long_hex);
        data[0] ^= 1;
        hash_sha256(data, n + 1, hex);
        CU_ASSERT(strcmp(hex, long_hex) != 0);
        CU_ASSERT(hash64(data, n, 0) != hash64(data, n + 1, 0));
        CU_ASSERT(hash64(data, n, 0) != hash64(data, n, 1));
    }
}

static char *manual(bool (*print)(FILE *, const char *), const char *filter, bool expect)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    CU_ASSERT_EQUAL(print(f, filter), expect);
    fclose(f);
    return text;
}

static void test_manual(void)
{
    char *text = manual(manual_isa, NULL, true), *json = manual(manual_isa_json, NULL, true);
    for (enum op i = 0; i < NOPS; i++) {
        const struct isa_info *info = isa_info(i);
        char name[64], row[128];
        struct strbuf meaning = {0};
        strbuf_wrap(&meaning, info->meaning, 2, 2, 110);
        CU_ASSERT_PTR_NOT_NULL(strstr(text, meaning.text));
        strbuf_free(&meaning);
        bool any = info->queue == QUEUE_ANY; /* where the transfer's result is wanted decides */
        snprintf(row, sizeof row, "\n%-18s queue %s, unit %s\n", info->name,
                 any ? "tp, dp or compute" : isa_queue_name(info->queue), isa_unit_name(info->unit));
        CU_ASSERT_PTR_NOT_NULL(strstr(text, row));
        snprintf(name, sizeof name, "{\"name\": \"%s\", \"number\": %u,", info->name, i);
        CU_ASSERT_PTR_NOT_NULL(strstr(json, name));
    }
    free(text);
    free(json);
    text = manual(manual_isa, "relu", true);
    CU_ASSERT_STRING_EQUAL(
        text, "RELU               queue compute, unit stream\n"
              "  y = max(x, 0)^power, power 1 or 2\n"
              "    y         [t, h]             write                               C: f32, bf16 or f16, the "
              "same for all C\n"
              "    x         [t, h]             read                                C: f32, bf16 or f16, the "
              "same for all C\n"
              "    power     integer\n"
              "\n"
              "RELU_I             queue compute, unit stream\n"
              "  gradient of RELU\n"
              "    dx        [t, h]             write                               C: f32, bf16 or f16, the "
              "same for all C\n"
              "    dy        [t, h]             read                                C: f32, bf16 or f16, the "
              "same for all C\n"
              "    x         [t, h]             read                                C: f32, bf16 or f16, the "
              "same for all C\n"
              "    power     integer\n");
    free(text);
    free(manual(manual_isa, "nothing", false));
    free(manual(manual_isa_json, "nothing", false));
}

void suite_isa(void)
{
    CU_pSuite s = CU_add_suite("isa", NULL, NULL);
    CU_add_test(s, "rows", test_rows);
    CU_add_test(s, "indices", test_indices);
    CU_add_test(s, "queues", test_queues);
    CU_add_test(s, "fingerprint", test_fingerprint);
    CU_add_test(s, "hashes", test_hashes);
    CU_add_test(s, "manual", test_manual);
}
