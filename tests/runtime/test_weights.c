/* Persistent state between buckets and logical tensors: boxes moved by slots, stored transposed, padded,
 * sharded; initial rules independent of the layout; given weights; what every rank answers for when it saves.
 */

#include "kernels/cpu/rows.h"
#include "runtime/weights.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ROWS = 10,
    PADDED = 12,
    COLS = 6,
    VECTOR = 5,
    SHARDS = 2,
    ELEMENTS = PADDED / 2 * COLS + COLS * PADDED / 2 + 8
};

/* Two ranks of a tensor split.  One bucket: a [10, 6] table split by rows and padded to 12 (6 each); its twin
 * stored transposed ([6 columns][6 rows each]); a vector of 5 in both.  ZeRO: each rank owns half of the
 * bucket's elements. */
struct fixture {
    struct program *p;
    struct ranks *ranks;
    float arena[2][5 * ELEMENTS];
};

static struct buffer make_buffer(enum buffer_kind kind, enum dtype dtype, uint64_t elements, uint64_t offset,
                                 uint32_t shard)
{
    uint64_t bytes = elements * isa_dtype_bytes(dtype);
    return (struct buffer){.name = "b",
                           .kind = kind,
                           .dtype = dtype,
                           .ring = NONE,
                           .bytes = bytes,
                           .stride = bytes,
                           .offset = offset,
                           .bucket = 0,
                           .shard_slot = shard};
}

static void open_fixture(struct fixture *f, bool sharded)
{
    struct program *p = f->p = program_new(0, 1);
    program_slot(p, "tp", SLOT_COORD, 1u << AXIS_TP, 1);
    struct bucket bucket = {
        .name = "all", .elements = ELEMENTS, .tensor = 0, .ntensors = 3, .count_slot = NONE};
    struct tensor table = {.name = "table",
                           .ndim = 2,
                           .shape = {ROWS, COLS},
                           .rows = PADDED / 2,
                           .cols = COLS,
                           .row_slot = 0,
                           .row_stride = PADDED / 2,
                           .col_slot = NONE,
                           .at = 0,
                           .init = INIT_NORMAL,
                           .std = 0.5};
    struct tensor turned = {.name = "turned",
                            .ndim = 2,
                            .shape = {ROWS, COLS},
                            .rows = COLS,
                            .cols = PADDED / 2,
                            .row_slot = 0,
                            .row_stride = PADDED / 2,
                            .col_slot = NONE,
                            .transposed = true,
                            .at = PADDED / 2 * COLS,
                            .init = INIT_NORMAL,
                            .std = 0.5};
    struct tensor vector = {.name = "vector",
                            .ndim = 1,
                            .shape = {1, VECTOR},
                            .rows = 1,
                            .cols = VECTOR,
                            .row_slot = NONE,
                            .col_slot = NONE,
                            .at = PADDED * COLS + 1,
                            .init = INIT_ONES};
    program_bucket(p, &bucket);
    program_tensor(p, &table);
    program_tensor(p, &turned);
    program_tensor(p, &vector);
    uint64_t size = ELEMENTS * sizeof(float), own = sharded ? ELEMENTS / SHARDS : ELEMENTS;
    struct buffer buffers[] = {make_buffer(BUFFER_PARAM, DTYPE_BF16, ELEMENTS, 0, NONE),
                               make_buffer(BUFFER_MASTER, DTYPE_F32, own, size, sharded ? 0 : NONE),
                               make_buffer(BUFFER_MOMENT1, DTYPE_F32, own, 2 * size, sharded ? 0 : NONE),
                               make_buffer(BUFFER_STEP, DTYPE_F32, own, 3 * size, NONE)};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        program_buffer(p, &buffers[i]);
    uint32_t i = program_insn(p, OP_SGD);
    struct operand *o = &p->operands[p->insns[i].operand];
    o[OPND(SGD, p)] = (struct operand){.buffer = 1,
                                       .dtype = DTYPE_F32,
                                       .mark = MARK_UPDATE,
                                       .slot = UINT16_MAX,
                                       .rows = 1,
                                       .cols = (uint32_t)own,
                                       .ld = (uint32_t)own};
    o[OPND(SGD, g)] = o[OPND(SGD, p)];
    o[OPND(SGD, g)].buffer = 3;
    f->ranks = ranks_new(2, 1, 0, 2);
    f->ranks->ranks[1].slot = 1;
    f->ranks->values[1] = 1;
    memset(f->arena, 0xff, sizeof f->arena);
}

/* as where the master copy stays in host memory: the update works on a piece that was fetched, and writes the
 * working copy */
static void keep_in_host_memory(struct fixture *f)
{
    struct program *p = f->p;
    struct buffer piece = make_buffer(BUFFER_STEP, DTYPE_F32, ELEMENTS, 4 * ELEMENTS * sizeof(float), NONE);
    struct operand *o = &p->operands[p->insns[0].operand];
    piece.bucket = NONE;
    o[OPND(SGD, copy)] = o[OPND(SGD, p)];
    o[OPND(SGD, copy)].buffer = 0;
    o[OPND(SGD, copy)].dtype = DTYPE_BF16;
    o[OPND(SGD, p)].buffer = p->nbuffers;
    program_buffer(p, &piece);
}

static void close_fixture(struct fixture *f)
{
    program_free(f->p);
    ranks_free(f->ranks);
}

static struct weights_place place(struct fixture *f, uint32_t rank)
{
    return (struct weights_place){f->p, f->ranks, rank, (uint8_t *)f->arena[rank]};
}

/* of the working copy */
static uint16_t param_bits(const struct fixture *f, uint32_t rank, uint64_t element)
{
    return ((const uint16_t *)(const void *)f->arena[rank])[element];
}

static void init(enum dtype copy)
{
    static struct fixture f;
    struct error error;
    open_fixture(&f, false);
    f.p->buffers[0].dtype = copy;
    for (uint32_t r = 0; r < 2; r++) {
        struct weights_place w = place(&f, r);
        CU_ASSERT(weights_init(&w, NULL, 5, &error) == STATUS_OK);
    }
    const float *master = f.arena[1] + ELEMENTS, *moment = f.arena[1] + 2 * ELEMENTS;
    for (uint32_t e = 0; e < ELEMENTS; e++) {
        CU_ASSERT(param_bits(&f, 1, e) == (copy == DTYPE_F16 ? f16_round(master[e]) : bf16_round(master[e])));
        CU_ASSERT(moment[e] == 0);
    }
    for (uint32_t c = 0; c < COLS; c++) {
        CU_ASSERT(master[3 * COLS + c] != 0 && master[4 * COLS + c] == 0); /* rows 9 and 10: 10 is padding */
        CU_ASSERT(master[PADDED / 2 * COLS + c * PADDED / 2 + 3] != 0);
        CU_ASSERT(master[PADDED / 2 * COLS + c * PADDED / 2 + 4] == 0);
    }
    CU_ASSERT(master[PADDED * COLS] == 0 && master[PADDED * COLS + 1] == 1 &&
              master[PADDED * COLS + VECTOR + 1] == 0);
    CU_ASSERT(f.arena[0][ELEMENTS] != master[0]); /* another part of the table */
    close_fixture(&f);
}

static void test_init(void)
{
    init(DTYPE_BF16);
    init(DTYPE_F16);
}

enum { LONG = 1300, NARROW = 3 };

/* initial values of a [1300, 3] tensor, as it is or turned: more than are made at a time */
static void fill_long(bool turned, float *values)
{
    struct error error;
    struct program *p = program_new(0, 1);
    struct bucket bucket = {.name = "all", .elements = LONG * NARROW, .ntensors = 1, .count_slot = NONE};
    struct tensor t = {.name = "long",
                       .ndim = 2,
                       .shape = {LONG, NARROW},
                       .rows = turned ? NARROW : LONG,
                       .cols = turned ? LONG : NARROW,
                       .row_slot = NONE,
                       .col_slot = NONE,
                       .transposed = turned,
                       .init = INIT_NORMAL,
                       .std = 0.5};
    program_bucket(p, &bucket);
    program_tensor(p, &t);
    struct buffer b = make_buffer(BUFFER_PARAM, DTYPE_F32, LONG * NARROW, 0, NONE);
    program_buffer(p, &b);
    struct ranks *ranks = ranks_new(1, 1, 0, 0);
    struct weights_place w = {p, ranks, 0, (uint8_t *)values};
    CU_ASSERT(weights_init(&w, NULL, 5, &error) == STATUS_OK);
    program_free(p);
    ranks_free(ranks);
}

static void test_long(void)
{
    static float plain[LONG * NARROW], turned[LONG * NARROW];
    uint32_t wrong = 0;
    fill_long(false, plain);
    fill_long(true, turned);
    for (uint32_t i = 0; i < LONG; i++)
        for (uint32_t j = 0; j < NARROW; j++)
            wrong += plain[i * NARROW + j] != turned[j * LONG + i] || plain[i * NARROW + j] == 0;
    CU_ASSERT_EQUAL(wrong, 0);
}

static struct weights_sink make_sink(const char *dir, struct weight_plan *catalog, uint32_t n,
                                     _Atomic uint64_t *covered)
{
    struct error error;
    struct weights_sink sink = {.catalog = catalog, .ncatalog = n, .covered = covered};
    memset((void *)covered, 0, n * sizeof *covered);
    CU_ASSERT_FATAL(safetensors_create(dir, "model", catalog, n, 1 << 20, true, &sink.files, &error) == STATUS_OK);
    return sink;
}

static void check_saved(const struct safetensors *s, float factor)
{
    float table[ROWS * COLS], again[ROWS * COLS], vector[VECTOR];
    safetensors_load(safetensors_find(s, "table"), 0, 1, ROWS * COLS, table);
    safetensors_load(safetensors_find(s, "turned"), 0, 1, ROWS * COLS, again);
    safetensors_load(safetensors_find(s, "vector"), 0, 1, VECTOR, vector);
    for (uint32_t e = 0; e < ROWS * COLS; e++)
        CU_ASSERT(table[e] == factor * (float)e && again[e] == factor * (float)(1000 + e));
    for (uint32_t e = 0; e < VECTOR; e++)
        CU_ASSERT(vector[e] == factor * (float)(2000 + e));
}

/* weights given as files -> buffers -> the master copy saved again; the layouts differ, the files don't */
static void check_save(bool sharded, bool fetched)
{
    static struct fixture f;
    char dir[64] = "/tmp/llmc-save-XXXXXX", command[128];
    struct error error;
    struct weight_plan *catalog;
    uint32_t n;
    _Atomic uint64_t covered[3];
    struct safetensors *given, *saved;
    CU_ASSERT_FATAL(mkdtemp(dir) != NULL);
    open_fixture(&f, sharded);
    if (fetched)
        keep_in_host_memory(&f);
    const struct program *programs[] = {f.p};
    CU_ASSERT_FATAL(weights_catalog(programs, 1, STATE_WEIGHT, false, &catalog, &n, &error) == STATUS_OK);
    CU_ASSERT_FATAL(n == 3);
    struct weights_sink sink = make_sink(dir, catalog, n, covered);
    for (uint32_t t = 0; t < 3; t++)
        for (uint32_t e = 0; e < (t == 2 ? VECTOR : ROWS * COLS); e++) {
            float x = (float)(1000 * t + e);
            memcpy(safetensors_target(sink.files, t) + 4 * e, &x, 4);
        }
    CU_ASSERT(weights_complete(&sink, &error) == STATUS_BUG);
    CU_ASSERT_STRING_EQUAL(error.text, "the ranks answer for 0 of the 60 elements of tensor 'table'");
    CU_ASSERT(safetensors_finish(sink.files, true, &error) == STATUS_OK);
    CU_ASSERT_FATAL(safetensors_open(dir, &given, &error) == STATUS_OK);
    sink = make_sink(dir, catalog, n, covered);
    for (uint32_t r = 0; r < 2; r++) {
        struct weights_place w = place(&f, r);
        CU_ASSERT(weights_init(&w, (const struct safetensors *[NSTATES]){given}, 0, &error) == STATUS_OK);
        weights_save(&w, &sink);
    }
    /* unsharded, both ranks hold and answer for the vector: counted twice, which is an error of the plan */
    CU_ASSERT(weights_complete(&sink, &error) == STATUS_BUG);
    CU_ASSERT(safetensors_finish(sink.files, true, &error) == STATUS_OK);
    if (!sharded) {
        CU_ASSERT_STRING_EQUAL(error.text, "the ranks answer for 10 of the 5 elements of tensor 'vector'");
        CU_ASSERT_FATAL(safetensors_open(dir, &saved, &error) == STATUS_OK);
        check_saved(saved, 1);
        safetensors_close(saved);
        /* the gradient operand of the same instruction */
        for (uint32_t r = 0; r < 2; r++)
            for (uint32_t e = 0; e < ELEMENTS; e++)
                f.arena[r][3 * ELEMENTS + e] = 2 * f.arena[r][ELEMENTS + e];
        sink = make_sink(dir, catalog, n, covered);
        for (uint32_t r = 0; r < 2; r++) {
            struct weights_place w = place(&f, r);
            weights_save_gradient(&w, 0, &sink);
        }
        CU_ASSERT(safetensors_finish(sink.files, true, &error) == STATUS_OK);
        CU_ASSERT_FATAL(safetensors_open(dir, &saved, &error) == STATUS_OK);
        check_saved(saved, 2);
        safetensors_close(saved);
    }
    safetensors_close(given);
    free(catalog);
    close_fixture(&f);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    CU_ASSERT(system(command) == 0);
}

static void test_save(void)
{
    check_save(false, false);
    check_save(true, false);
    check_save(false, true);
}

/* every element counted once where only the first rank answers for copies */
static void test_count_slot(void)
{
    static struct fixture f;
    _Atomic uint64_t covered[3];
    char dir[64] = "/tmp/llmc-save-XXXXXX", command[128];
    struct error error;
    struct weight_plan *catalog;
    uint32_t n;
    CU_ASSERT_FATAL(mkdtemp(dir) != NULL);
    open_fixture(&f, false);
    f.p->tensors[0] = f.p->tensors[2]; /* only copies: the vector */
    f.p->buckets[0].ntensors = 1;
    f.p->buckets[0].count_slot = program_slot(f.p, "first", SLOT_FIRST, 1, 1);
    free(f.ranks->values);
    f.ranks->values = calloc(4, sizeof *f.ranks->values);
    f.ranks->ranks[1].slot = 2;
    f.ranks->values[1] = 1; /* rank 0 is first; rank 1: coordinate 1, not first */
    f.ranks->values[2] = 1;
    const struct program *programs[] = {f.p};
    f.p->ntensors = 1;
    CU_ASSERT_FATAL(weights_catalog(programs, 1, STATE_WEIGHT, false, &catalog, &n, &error) == STATUS_OK);
    struct weights_sink sink = make_sink(dir, catalog, n, covered);
    for (uint32_t r = 0; r < 2; r++) {
        struct weights_place w = place(&f, r);
        CU_ASSERT(weights_init(&w, NULL, 5, &error) == STATUS_OK);
        weights_save(&w, &sink);
    }
    CU_ASSERT(weights_complete(&sink, &error) == STATUS_OK);
    CU_ASSERT(safetensors_finish(sink.files, true, &error) == STATUS_OK);
    free(catalog);
    close_fixture(&f);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    CU_ASSERT(system(command) == 0);
}

/* the first value that is not finite is named by what it is, and of which tensor */
static void test_finite(void)
{
    static const struct {
        uint64_t buffer, element;
        const char *what;
    } cases[] = {{1, 3, "the master copy of table"},
                 {1, PADDED / 2 * COLS, "the master copy of turned"},
                 {2, PADDED * COLS + 1, "the first moments of vector"},
                 {2, PADDED * COLS, "the first moments between tensors"}};
    static struct fixture f;
    struct error error;
    char what[64] = "";
    open_fixture(&f, false);
    struct weights_place w = place(&f, 0);
    CU_ASSERT(weights_init(&w, NULL, 5, &error) == STATUS_OK);
    CU_ASSERT(weights_finite(&w, what, sizeof what));
    CU_ASSERT_STRING_EQUAL(what, "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float *at = &f.arena[0][cases[i].buffer * ELEMENTS + cases[i].element], was = *at;
        *at = i % 2 ? NAN : INFINITY;
        CU_ASSERT(!weights_finite(&w, what, sizeof what));
        CU_ASSERT_STRING_EQUAL(what, cases[i].what);
        *at = was;
    }
    close_fixture(&f);
}

static void test_refused(void)
{
    static const struct {
        const char *header, *message;
        size_t data;
    } cases[] = {
        {"{}", "the weights lack tensor 'table'", 0},
        {"{\"table\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         "tensor 'table' of the weights is neither F32, BF16 nor F16", 4},
        {"{\"model.table\":{\"dtype\":\"F16\",\"shape\":[1,2],\"data_offsets\":[0,4]}}",
         "tensor 'table' is 1 x 2 in the weights, 10 x 6 in the plan", 4},
        {"{\"table\":{\"dtype\":\"F16\",\"shape\":[10,6],\"data_offsets\":[0,120]},"
         "\"turned\":{\"dtype\":\"F16\",\"shape\":[10,6],\"data_offsets\":[120,240]},"
         "\"vector\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[240,246]}}",
         "tensor 'vector' is 3 in the weights, 5 in the plan", 246},
    };
    static const char zeros[256];
    static struct fixture f;
    char path[] = "/tmp/llmc-refused-XXXXXX";
    struct error error;
    int fd = mkstemp(path);
    CU_ASSERT_FATAL(fd >= 0);
    FILE *out = fdopen(fd, "wb");
    open_fixture(&f, false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct safetensors *s;
        uint64_t n = strlen(cases[i].header);
        rewind(out);
        CU_ASSERT_FATAL(fwrite(&n, 8, 1, out) == 1 && fwrite(cases[i].header, n, 1, out) == 1 &&
                        fwrite(zeros, 1, cases[i].data, out) == cases[i].data && fflush(out) == 0);
        CU_ASSERT_FATAL(ftruncate(fd, (off_t)(8 + n + cases[i].data)) == 0);
        CU_ASSERT_FATAL(safetensors_open(path, &s, &error) == STATUS_OK);
        struct weights_place w = place(&f, 0);
        CU_ASSERT(weights_init(&w, (const struct safetensors *[NSTATES]){s}, 0, &error) == STATUS_INPUT);
        CU_ASSERT_STRING_EQUAL(error.text, cases[i].message);
        safetensors_close(s);
    }
    fclose(out);
    unlink(path);
    close_fixture(&f);
}

void suite_weights(void);
void suite_weights(void)
{
    CU_pSuite s = CU_add_suite("weights", NULL, NULL);
    CU_add_test(s, "initial values", test_init);
    CU_add_test(s, "long rows", test_long);
    CU_add_test(s, "loaded and saved", test_save);
    CU_add_test(s, "copies are saved once", test_count_slot);
    CU_add_test(s, "what is not finite", test_finite);
    CU_add_test(s, "refused weights", test_refused);
}
