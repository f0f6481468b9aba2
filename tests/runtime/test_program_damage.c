/* What the loader refuses of programs and rank tables that no text can say: damaged tables in memory,
 * sections that are whole but not what they should hold, files that are too large.  With the exact message.
 */

#include "runtime/hash.h"
#include "runtime/program.h"
#include "runtime/program_words.h"
#include "tests/runtime/program_parse.h"
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
    struct error error = {""};
    CU_ASSERT_EQUAL_FATAL(program_parse(small_program, strlen(small_program), &p, &error), STATUS_OK);
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
        {dtype, "buffer 1 (y): unknown dtype 5"},
        {kind, "buffer 1 (y): unknown kind 9"},
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
        struct error error = {""};
        cases[i].damage(p);
        enum status s = program_check(p, &error);
        refused_expect(s, error.text, cases[i].message);
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
        char text[4096];
        struct error error = {""};
        struct program *p;
        const char *at = strstr(small_program, "evaluation no"), *end = strstr(small_program, "7 compute");
        int n = snprintf(text, sizeof text, "%.*sevaluation %s%.*s", (int)(at - small_program), small_program,
                         cases[i].evaluation, (int)(end - at - 13), at + 13);
        for (int k = 0; k < cases[i].seams; k++)
            n += snprintf(text + n, sizeof text - (size_t)n, "%d compute SEAM step=%%block#3[1x8]f64\n",
                          7 + k);
        enum status s = program_parse(text, strlen(text), &p, &error);
        if (cases[i].message)
            refused_expect(s, error.text, cases[i].message);
        else
            CU_ASSERT_EQUAL(s, STATUS_OK);
        program_free(p);
    }
}

/* ---- files ---- */

enum { HEAD = 32, SECTION = 16, MOST_SECTIONS = 7 };

static void put64(uint8_t *at, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        at[i] = (uint8_t)(v >> (8 * i));
}

static size_t data_at(const uint8_t *file)
{
    return HEAD + SECTION * (size_t)file[12] + 8;
}

static void read_lengths(const uint8_t *file, size_t *length)
{
    for (size_t i = 0; i < file[12]; i++)
        length[i] = file[HEAD + SECTION * i] | (size_t)file[HEAD + SECTION * i + 1] << 8;
}

/* the header fits its sections again, which are as long as said */
static void sign(uint8_t *file, size_t size, const size_t *length)
{
    size_t head = data_at(file) - 8, at = head + 8;
    put64(file + 16, size);
    for (uint32_t i = 0; i < file[12]; i++) {
        put64(file + HEAD + SECTION * i, length[i]);
        put64(file + HEAD + SECTION * i + 8, hash64(file + at, length[i], i));
        at += length[i];
    }
    put64(file + head, hash64(file, head, 0));
}

/* In a section of a file: other bytes instead of those from `at` on, -1 = the last, and zeros at its end. */
struct edit {
    int section, at, removed;
    const char *bytes;
    size_t n, zeros;
};
#define PUT(section, at, removed, text) {section, at, removed, text, sizeof text - 1, 0}
#define PAD(section, zeros) {section, 0, 0, "", 0, zeros}

/* the file of size[0] bytes, edited and signed again */
static uint8_t *edit_file(const uint8_t *from, size_t *size, const struct edit *edits, size_t n)
{
    size_t length[MOST_SECTIONS], total = *size;
    read_lengths(from, length);
    for (size_t i = 0; i < n; i++)
        total += edits[i].n + edits[i].zeros;
    uint8_t *file = calloc(total, 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    memcpy(file, from, *size);
    for (const struct edit *e = edits; e < edits + n; e++) {
        size_t begin = data_at(file), end;
        for (int k = 0; k < e->section; k++)
            begin += length[k];
        end = begin + length[e->section];
        uint8_t *at = e->at < 0 ? file + end - 1 : file + begin + e->at;
        memmove(file + end - e->removed + e->n + e->zeros, file + end, *size - end);
        memmove(at + e->n, at + e->removed, (size_t)(file + end - at) - (size_t)e->removed);
        memcpy(at, e->bytes, e->n);
        memset(file + end - e->removed + e->n, 0, e->zeros);
        length[e->section] += e->n + e->zeros - (size_t)e->removed;
        *size += e->n + e->zeros - (size_t)e->removed;
    }
    sign(file, *size, length);
    return file;
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

#define ONE_FORM "it is not written in the one form its contents have"

/* Of small_program: what memory rests on is refused where it is read, all else at the end. */
static void test_sections(void)
{
    enum { FIELDS, TABLES, SEGMENTS, FRAMES, WAITS, CALLS, SEQ };
    static const struct {
        struct edit edits[2];
        const char *message; /* NULL: fine */
    } cases[] = {
        /* more slots, rings, buffers, buckets, tensors than bytes of tables; more instructions than of seq */
        {{PUT(FIELDS, 56, 1, "\xbb\1")}, "its header fields are malformed"},
        {{PUT(FIELDS, 57, 1, "\xbb\1")}, "its header fields are malformed"},
        {{PUT(FIELDS, 58, 1, "\xbb\1")}, "its header fields are malformed"},
        {{PUT(FIELDS, 59, 1, "\xbb\1")}, "its header fields are malformed"},
        {{PUT(FIELDS, 60, 1, "\xbb\1")}, "its header fields are malformed"},
        {{PUT(FIELDS, 60, 1, "\xba\1")}, "its tables are malformed"},
        {{PUT(FIELDS, 61, 1, "\11")}, "its header fields are malformed"},
        {{PUT(FIELDS, 61, 1, "\x81\x80\x80\x20"), PAD(SEQ, LIMIT_INSNS)}, /* one more than any program has */
         "its header fields are malformed"},
        {{PUT(FIELDS, -1, 1, "\x80")}, "its header fields are malformed"}, /* a number that does not end */
        {{PUT(TABLES, -1, 1, "\x80")}, "its tables are malformed"},
        {{PUT(TABLES, 38, 1, "\xff\xff\xff\xff\xf"), PUT(TABLES, 53, 1, "\1")}, /* 2^32 - 1 places */
         "its tables are malformed"},
        {{PUT(SEGMENTS, -1, 1, "\x80")}, "its segments are malformed"},
        {{PUT(FRAMES, -1, 1, "\x80")}, "its frames are malformed"},
        {{PUT(WAITS, -1, 1, "\x80")}, "its waits are malformed"},
        {{PUT(CALLS, -1, 1, "\x80")}, "its calls are malformed"},
        {{PUT(SEGMENTS, 0, 1, "\x7f")}, "its segments are malformed"}, /* more than there are */
        {{PUT(SEGMENTS, 0, 1, "\10"), PAD(SEGMENTS, 4)}, /* one without an instruction */
         "its segments are malformed"},
        {{PUT(SEGMENTS, 4, 1, "\x7f")}, "its segments are malformed"}, /* no such opcode */
        {{PUT(SEGMENTS, 7, 1, "\2")}, "its segments are malformed"},    /* symbol 2 of 2 */
        {{PUT(SEGMENTS, 7, 1, "\1")}, ONE_FORM},
        {{PUT(FRAMES, 1, 1, "\7")}, "its frames are malformed"},  /* segment 7 of 7 */
        {{PUT(FRAMES, 3, 1, "\12")}, "its frames are malformed"}, /* buffer 5 of 5 */
        {{PUT(FRAMES, 3, 1, "\1")}, "its frames are malformed"},  /* buffer -1 */
        {{PUT(WAITS, 4, 3, "\21\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0")},
         "its waits are malformed"}, /* 17 */
        {{PUT(WAITS, 4, 3, "\20\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0")}, NULL},
        {{PUT(WAITS, 5, 1, "\6")}, "its waits are malformed"},             /* for queue 6 of 6 */
        {{PUT(WAITS, 2, 5, "\2\0\1\0\0\1\1\0\0")}, /* two instructions of one wait */
         "its calls are malformed"},
        {{PUT(CALLS, 1, 1, "\16")}, "its calls are malformed"},            /* frame 7 of 7 */
        {{PUT(CALLS, 2, 1, "\12")}, "its calls are malformed"},            /* pattern 5 of 5 */
        {{PUT(FIELDS, 61, 1, "\7")}, "its calls are malformed"},            /* 8 instructions, not 7 */
        /* what nothing reads */
        {{PAD(FIELDS, 1)}, ONE_FORM},
        {{PAD(TABLES, 1)}, ONE_FORM},
        {{PAD(SEGMENTS, 1)}, ONE_FORM},
        {{PAD(FRAMES, 1)}, ONE_FORM},
        {{PAD(WAITS, 1)}, ONE_FORM},
        {{PAD(CALLS, 1)}, ONE_FORM},
        {{PAD(SEQ, 1)}, ONE_FORM},
        {{PUT(SEQ, -1, 1, "\x80")},
         "instruction 1 (0 dp ALL_GATHER y=%y#1[16x8]f32 x=%w#2[4x8]f32 group=@tpgroup#3): seq 0 follows 0"},
    };
    struct program *p = small(), *q;
    uint8_t *bytes;
    size_t size;
    CU_ASSERT_EQUAL_FATAL(program_encode(p, &bytes, &size), STATUS_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error error = {""};
        size_t edited = size;
        uint8_t *file = edit_file(bytes, &edited, cases[i].edits, cases[i].edits[1].bytes ? 2 : 1);
        enum status s = program_decode(file, edited, &q, &error);
        if (cases[i].message)
            refused_expect(s, error.text, cases[i].message);
        CU_ASSERT((s == STATUS_OK) == !cases[i].message && !q == (s != STATUS_OK));
        program_free(q);
        free(file);
    }
    free(bytes);
    program_free(p);
}

static void test_ranks(void)
{
    enum { COUNTS, GROUPS, RANKS };
    static const struct {
        struct edit edits[2];
        const char *message; /* NULL: fine */
    } cases[] = {
        /* more ranks, groups, values than bytes */
        {{PUT(COUNTS, 0, 1, "\13")}, "its header is malformed"},
        {{PUT(COUNTS, 2, 1, "\12")}, "its header is malformed"},
        {{PUT(COUNTS, 3, 1, "\13")}, "its header is malformed"},
        {{PUT(COUNTS, 0, 1, "\12")}, "its ranks are malformed"},
        {{PUT(COUNTS, 2, 1, "\11")}, "its groups are malformed"},
        {{PUT(COUNTS, 3, 1, "\12")}, ONE_FORM},
        /* 2^24 ranks, 2^24 roles, 2^26 groups and one more */
        {{PUT(COUNTS, 0, 1, "\x81\x80\x80\10"), PAD(RANKS, 1 << 24)}, "its header is malformed"},
        {{PUT(COUNTS, 1, 1, "\x81\x80\x80\10")}, "its header is malformed"},
        {{PUT(COUNTS, 1, 1, "\x80\x80\x80\10")}, NULL},
        {{PUT(COUNTS, 2, 1, "\x81\x80\x80\x20"), PAD(GROUPS, 1 << 26)}, "its header is malformed"},
        {{PUT(COUNTS, -1, 1, "\x80")}, "its header is malformed"},
        {{PUT(GROUPS, -1, 1, "\x80")}, "its groups are malformed"},
        {{PUT(RANKS, -1, 1, "\x80")}, "its ranks are malformed"},
        {{PUT(RANKS, 3, 1, "\3")}, "its ranks are malformed"}, /* 3 values of 2 */
        {{PUT(RANKS, 8, 1, "\2"), PAD(RANKS, 1)}, "its ranks are malformed"}, /* 2 of 1 */
        {{PUT(RANKS, 8, 2, "\0")}, ONE_FORM},                  /* one is left */
        {{PUT(RANKS, 0, 1, "\1")}, "rank 0: role 1 of 1"},
        {{PAD(COUNTS, 1)}, ONE_FORM},
        {{PAD(GROUPS, 1)}, ONE_FORM},
        {{PAD(RANKS, 1)}, ONE_FORM},
    };
    struct ranks *r = two(), *q;
    uint8_t *bytes;
    size_t size;
    CU_ASSERT_EQUAL_FATAL(ranks_encode(r, &bytes, &size), STATUS_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error error = {""};
        size_t edited = size;
        uint8_t *file = edit_file(bytes, &edited, cases[i].edits, cases[i].edits[1].bytes ? 2 : 1);
        enum status s = ranks_decode(file, edited, &q, &error);
        if (cases[i].message)
            refused_expect(s, error.text, cases[i].message);
        CU_ASSERT((s == STATUS_OK) == !cases[i].message && !q == (s != STATUS_OK));
        ranks_free(q);
        free(file);
    }
    free(bytes);
    ranks_free(r);
}

static void test_files(void)
{
    struct ranks *r = two(), *q;
    uint8_t *bytes, *file;
    size_t size, length[MOST_SECTIONS];
    char want[400], path[] = "/tmp/test_damage_XXXXXX";
    struct error error = {""};
    CU_ASSERT_EQUAL_FATAL(ranks_encode(r, &bytes, &size), STATUS_OK);
    read_lengths(bytes, length);
    file = calloc(size + 3, 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    memcpy(file, bytes, size);
    sign(file, size, length);
    CU_ASSERT(!memcmp(file, bytes, size)); /* so this is how files are signed */
    sign(file, size + 3, length);
    enum status s = ranks_decode(file, size + 3, &q, &error);
    refused_expect(s, error.text, "3 bytes follow its last section");
    s = ranks_decode(file, (size_t)LIMIT_FILE + 1, &q, &error);
    refused_expect(s, error.text, "2147483649 bytes, at most 2147483648 are read");

    int fd = mkstemp(path);
    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(write(fd, file, size + 3), (ssize_t)size + 3);
    s = ranks_read(path, &q, &error);
    snprintf(want, sizeof want, "%s: 3 bytes follow its last section", path);
    refused_expect(s, error.text, want);
    CU_ASSERT_EQUAL(ftruncate(fd, (off_t)LIMIT_FILE + 1), 0); /* holes: it takes no room */
    s = ranks_read(path, &q, &error);
    snprintf(want, sizeof want, "%s: 2147483649 bytes, at most 2147483648 are read", path);
    refused_expect(s, error.text, want);
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
    test_sections();
    test_ranks();
    test_files();
}

void suite_program_damage(void)
{
    CU_pSuite s = CU_add_suite("program_damage", NULL, NULL);
    CU_add_test(s, "tables in memory", test_memory);
    CU_add_test(s, "seams come in pairs", test_seams);
    CU_add_test(s, "sections of programs with wrong contents", test_sections);
    CU_add_test(s, "sections of tables of ranks with wrong contents", test_ranks);
    CU_add_test(s, "files that are too long", test_files);
}
