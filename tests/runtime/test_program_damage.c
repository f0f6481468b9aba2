/* What the loader refuses of programs and rank tables that no text can say: damaged tables in memory,
 * sections that are whole but not what they should hold, files that are too large.  With the exact message.
 */

#include "runtime/hash.h"
#include "runtime/program.h"
#include "runtime/program_words.h"
#include "tests/runtime/random_program.h"
#include "tests/runtime/refused.h"

#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void suite_program_damage(void);

static struct program *small(void)
{
    struct program *p;
    char error[800] = "";
    CU_ASSERT_EQUAL_FATAL(program_parse(small_program, strlen(small_program), &p, error, sizeof error),
                          STATUS_OK);
    return p;
}

/* ---- tables in memory ---- */

static void no_name(struct program *p)
{
    memset(p->rings[0].name, 0, sizeof p->rings[0].name);
}
static void blank_in_name(struct program *p)
{
    p->buffers[1].name[0] = ' ';
}
static void delete_in_name(struct program *p)
{
    p->buffers[1].name[0] = 127;
}
static void mark_in_name(struct program *p)
{
    p->buffers[1].name[0] = '#';
}
static void dtype(struct program *p)
{
    p->buffers[1].dtype = NDTYPES;
}
static void kind(struct program *p)
{
    p->buffers[1].kind = NBUFFER_KINDS;
}
static void ring_of_state(struct program *p)
{
    p->buffers[2].ring = 0;
    p->buffers[2].bytes = 3072;
    p->buffers[2].stride = 1024;
}
static void ring_of_workspace(struct program *p)
{
    p->buffers[0].kind = BUFFER_WORKSPACE;
}
static void wait_queue(struct program *p)
{
    p->waits[p->insns[2].wait].queue = NQUEUES;
}
static void wait_queue_last(struct program *p)
{
    p->waits[p->insns[2].wait].queue = NQUEUES - 1;
}
static void shared_operands(struct program *p) /* SEND and RECV have operands of the same form */
{
    p->insns[4].operand = p->insns[3].operand;
}

static void test_memory(void)
{
    static const struct {
        void (*damage)(struct program *p);
        const char *message;
    } cases[] = {
        {no_name, "ring 0: it has no name"},
        {blank_in_name,
         "buffer 1: byte 32 in its name; allowed are printable ASCII characters but " PROGRAM_NAME_ENDS},
        {delete_in_name,
         "buffer 1: byte 127 in its name; allowed are printable ASCII characters but " PROGRAM_NAME_ENDS},
        {mark_in_name,
         "buffer 1: byte 35 in its name; allowed are printable ASCII characters but " PROGRAM_NAME_ENDS},
        {dtype, "buffer 1 (y): unknown dtype 4"},
        {kind, "buffer 1 (y): unknown kind 8"},
        {ring_of_state, "buffer 2 (w): persistent state can't be a ring"},
        {ring_of_workspace, "buffer 0 (x): a workspace can't be a ring or in host memory"},
        {wait_queue, "instruction 2 (2 tp ALL_REDUCE x=%x#0~1[8x8]f32 group=@tpgroup#3 max=0 <any:1): it "
                     "waits on queue 6 of 6"},
        {wait_queue_last, "instruction 2 (2 tp ALL_REDUCE x=%x#0~1[8x8]f32 group=@tpgroup#3 max=0 <copy:1): "
                          "it waits for copy:1, "
                          "but that queue has 0 instructions"},
        {shared_operands, "instruction 4 (4 recv RECV y=%x#0~1+256[8x8]f32 peer=@next#2): it shares operands "
                          "with instruction 3, "
                          "but not its opcode, queue and attributes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct program *p = small();
        char error[800] = "";
        cases[i].damage(p);
        enum status s = program_check(p, error, sizeof error);
        refused_expect(s, error, cases[i].message);
        program_free(p);
    }
}

/* ---- seams: two in a training program, or none ---- */

static void test_seams(void)
{
    static const struct {
        const char *evaluation;
        int seams;
        const char *message; /* NULL: fine */
    } cases[] = {
        {"no", 0, NULL},
        {"no", 1,
         "instruction 0 (0 compute TOKENS tokens=%y#1+2048[8x1]i32 step=%block#3[1x8]f64 sample=0 sequence=8 "
         "first=0 "
         "shift=0): the program has one seam, not two"},
        {"no", 2, NULL},
        {"no", 3, "instruction 9 (9 compute SEAM step=%block#3[1x8]f64): a third seam"},
        {"yes", 1, "instruction 7 (7 compute SEAM step=%block#3[1x8]f64): a seam in an evaluation program"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[4096], error[800] = "";
        struct program *p;
        const char *at = strstr(small_program, "evaluation no"), *end = strstr(small_program, "7 compute");
        int n = snprintf(text, sizeof text, "%.*sevaluation %s%.*s", (int)(at - small_program), small_program,
                         cases[i].evaluation, (int)(end - at - 13), at + 13);
        for (int k = 0; k < cases[i].seams; k++)
            n += snprintf(text + n, sizeof text - (size_t)n, "%d compute SEAM step=%%block#3[1x8]f64\n",
                          7 + k);
        enum status s = program_parse(text, strlen(text), &p, error, sizeof error);
        if (cases[i].message)
            refused_expect(s, error, cases[i].message);
        else
            CU_ASSERT_EQUAL(s, STATUS_OK);
        program_free(p);
    }
}

/* ---- files ---- */

enum { HEAD = 32, SECTION = 16, RANK_SECTIONS = 3, RANK_DATA = HEAD + RANK_SECTIONS * SECTION + 8 };

static void put64(uint8_t *at, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        at[i] = (uint8_t)(v >> (8 * i));
}

/* the header of a rank table fits its sections again, which are as long as said */
static void sign(uint8_t *file, size_t size, const size_t *length)
{
    size_t at = RANK_DATA;
    put64(file + 16, size);
    for (uint32_t i = 0; i < RANK_SECTIONS; i++) {
        put64(file + HEAD + SECTION * i, length[i]);
        put64(file + HEAD + SECTION * i + 8, hash64(file + at, length[i], i));
        at += length[i];
    }
    put64(file + RANK_DATA - 8, hash64(file, RANK_DATA - 8, 0));
}

/* two ranks of one role, one group of both, one slot value each */
static struct ranks *two(void)
{
    struct ranks *r = ranks_new(2, 1, 1, 2);
    r->groups[0] = (struct group){0, {2, 1, 1, 1}, {1, 0, 0, 0}};
    for (uint32_t i = 0; i < 2; i++) {
        r->ranks[i] = (struct rank_info){.role = 0, .gpu = i, .slot = i};
        r->values[i] = i;
    }
    return r;
}

/* a program whose first section does not end, with right hashes */
static void test_header(void)
{
    enum { SECTIONS = 7, DATA = HEAD + SECTION * SECTIONS + 8 };
    struct program *p = small(), *q;
    uint8_t *bytes;
    size_t size;
    char error[300] = "";
    CU_ASSERT_EQUAL_FATAL(program_encode(p, &bytes, &size), STATUS_OK);
    CU_ASSERT_FATAL(size > DATA);
    uint64_t length = bytes[HEAD] | (uint64_t)bytes[HEAD + 1] << 8;
    bytes[DATA + length - 1] |= 0x80;
    put64(bytes + HEAD + 8, hash64(bytes + DATA, length, 0));
    put64(bytes + DATA - 8, hash64(bytes, DATA - 8, 0));
    enum status s = program_decode(bytes, size, &q, error, sizeof error);
    refused_expect(s, error, "its header fields are malformed");
    CU_ASSERT_PTR_NULL(q);
    free(bytes);
    program_free(p);
}

static void test_ranks(void)
{
    enum { COUNTS, GROUPS, RANKS };
    static const struct {
        int section, at; /* this byte of that section */
        uint8_t byte;
        int more; /* bytes that the section is longer, and the file */
        const char *message;
    } cases[] = {
        {COUNTS, 0, 120, 0, "its header is malformed"},   {COUNTS, 2, 120, 0, "its header is malformed"},
        {COUNTS, 3, 120, 0, "its header is malformed"},   {COUNTS, 0, 2, 1, "its header is malformed"},
        {GROUPS, 0, 0x80, 0, "its groups are malformed"}, {GROUPS, 0, 0, 1, "its groups are malformed"},
        {RANKS, 0, 0x80, 0, "its ranks are malformed"},   {RANKS, 0, 0, 1, "its ranks are malformed"},
        {RANKS, 0, 1, 0, "rank 0: role 1 of 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ranks *r = two(), *q;
        uint8_t *bytes, *file;
        size_t size, length[RANK_SECTIONS], at = RANK_DATA;
        char error[300] = "";
        CU_ASSERT_EQUAL_FATAL(ranks_encode(r, &bytes, &size), STATUS_OK);
        file = calloc(size + 1, 1);
        CU_ASSERT_PTR_NOT_NULL_FATAL(file);
        for (int k = 0; k < RANK_SECTIONS; k++)
            length[k] = bytes[HEAD + SECTION * k];
        for (int k = 0; k < cases[i].section; k++)
            at += length[k];
        memcpy(file, bytes, at + length[cases[i].section]);
        memcpy(file + at + length[cases[i].section] + cases[i].more, bytes + at + length[cases[i].section],
               size - at - length[cases[i].section]);
        length[cases[i].section] += (size_t)cases[i].more;
        file[at + (size_t)cases[i].at] = cases[i].byte;
        sign(file, size + (size_t)cases[i].more, length);
        enum status s = ranks_decode(file, size + (size_t)cases[i].more, &q, error, sizeof error);
        refused_expect(s, error, cases[i].message);
        CU_ASSERT_PTR_NULL(q);
        free(file);
        free(bytes);
        ranks_free(r);
    }
}

static void test_files(void)
{
    struct ranks *r = two(), *q;
    uint8_t *bytes, *file;
    size_t size, length[RANK_SECTIONS];
    char error[400] = "", want[400], path[] = "/tmp/test_damage_XXXXXX";
    CU_ASSERT_EQUAL_FATAL(ranks_encode(r, &bytes, &size), STATUS_OK);
    for (int k = 0; k < RANK_SECTIONS; k++)
        length[k] = bytes[HEAD + SECTION * k];
    file = calloc(size + 3, 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    memcpy(file, bytes, size);
    sign(file, size, length);
    CU_ASSERT(!memcmp(file, bytes, size)); /* so this is how files are signed */
    sign(file, size + 3, length);
    enum status s = ranks_decode(file, size + 3, &q, error, sizeof error);
    refused_expect(s, error, "3 bytes follow its last section");
    s = ranks_decode(file, (size_t)LIMIT_FILE + 1, &q, error, sizeof error);
    refused_expect(s, error, "2147483649 bytes, at most 2147483648 are read");

    int fd = mkstemp(path);
    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(write(fd, file, size + 3), (ssize_t)size + 3);
    s = ranks_read(path, &q, error, sizeof error);
    snprintf(want, sizeof want, "%s: 3 bytes follow its last section", path);
    refused_expect(s, error, want);
    CU_ASSERT_EQUAL(ftruncate(fd, (off_t)LIMIT_FILE + 1), 0); /* holes: it takes no room */
    s = ranks_read(path, &q, error, sizeof error);
    snprintf(want, sizeof want, "%s: 2147483649 bytes, at most 2147483648 are read", path);
    refused_expect(s, error, want);
    close(fd);
    unlink(path);
    free(file);
    free(bytes);
    ranks_free(r);
}

void program_damage_refusals(void)
{
    test_memory();
    test_seams();
    test_header();
    test_ranks();
    test_files();
}

void suite_program_damage(void)
{
    CU_pSuite s = CU_add_suite("program_damage", NULL, NULL);
    CU_add_test(s, "tables in memory", test_memory);
    CU_add_test(s, "seams come in pairs", test_seams);
    CU_add_test(s, "a header that does not end", test_header);
    CU_add_test(s, "whole sections with wrong contents", test_ranks);
    CU_add_test(s, "files that are too long", test_files);
}
