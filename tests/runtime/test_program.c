/* Programs: building, checks, both written forms.  Valid programs come from random_program(); what is refused
 * comes in test_program_bad.c. */

#include "runtime/hash.h"
#include "runtime/program.h"
#include "runtime/program_bytes.h"
#include "runtime/program_words.h"
#include "tests/runtime/program_parse.h"
#include "tests/runtime/program_scan.h"
#include "tests/runtime/random_program.h"
#include "tests/runtime/refused.h"

#include <CUnit/Basic.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void suite_program(void);

static char *print(const struct program *p, size_t *n)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, n);
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    program_print(p, f);
    fclose(f);
    return text;
}

/* check, encode, decode, print, parse: all agree */
static void round_trip(const struct program *p)
{
    struct error error = {""};
    uint8_t *bytes, *again;
    size_t size, again_size, n, m;
    struct program *decoded, *parsed;
    CU_ASSERT_EQUAL_FATAL(program_check(p, &error), STATUS_OK);
    CU_ASSERT_EQUAL_FATAL(program_encode(p, &bytes, &size), STATUS_OK);
    CU_ASSERT_EQUAL_FATAL(program_decode(bytes, size, &decoded, &error), STATUS_OK);
    char *text = print(p, &n), *copy = print(decoded, &m);
    CU_ASSERT_STRING_EQUAL(text, copy);
    CU_ASSERT_EQUAL_FATAL(program_parse(text, n, &parsed, &error), STATUS_OK);
    CU_ASSERT_EQUAL(program_encode(parsed, &again, &again_size), STATUS_OK);
    CU_ASSERT(size == again_size && !memcmp(bytes, again, size));
    free(again);
    free(bytes);
    free(text);
    free(copy);
    program_free(decoded);
    program_free(parsed);
}

static void test_round_trips(void)
{
    for (uint64_t seed = 0; seed < 120; seed++) {
        struct program *p = random_program(seed, (uint32_t)(seed * 5 % 400));
        round_trip(p);
        program_free(p);
    }
}

/* every row of the table occurs in the random programs, with each optional operand both there and absent */
static void test_all_rows_seen(void)
{
    uint32_t seen[NOPS][ISA_MAX_OPERANDS] = {{0}};
    for (uint64_t seed = 0; seed < 10; seed++) {
        struct program *p = random_program(seed, 1000);
        for (uint32_t i = 0; i < p->ninsns; i++)
            for (uint32_t k = 0; k < isa_info(p->insns[i].op)->noperands; k++)
                seen[p->insns[i].op][k] |= p->operands[p->insns[i].operand + k].buffer == NONE ? 1 : 2;
        program_free(p);
    }
    for (enum op op = 0; op < NOPS; op++)
        for (uint32_t k = 0; k < isa_info(op)->noperands; k++)
            CU_ASSERT_EQUAL(seen[op][k], isa_info(op)->operand[k].optional ? 3 : 2);
}

/* design: 100,000 instructions of repeating layers and microbatches take at most 1 MB */
static void test_size(void)
{
    struct program *p = layered_program(8, 900);
    uint8_t *bytes;
    size_t size;
    struct error error;
    struct program *q;
    CU_ASSERT(p->ninsns > 100000);
    CU_ASSERT_EQUAL(program_check(p, &error), STATUS_OK);
    CU_ASSERT_EQUAL(program_encode(p, &bytes, &size), STATUS_OK);
    CU_ASSERT(size < 300000);
    CU_ASSERT_EQUAL(program_decode(bytes, size, &q, &error), STATUS_OK);
    program_free(q);
    program_free(p);
    free(bytes);
}

static void test_small(void)
{
    struct program *p;
    struct error error = {""};
    size_t n;
    CU_ASSERT_EQUAL_FATAL(program_parse(small_program, strlen(small_program), &p, &error), STATUS_OK);
    char *text = print(p, &n);
    CU_ASSERT_STRING_EQUAL(text, small_program);
    round_trip(p);
    CU_ASSERT_EQUAL(p->operands[p->insns[6].operand].mark, MARK_ADD);
    CU_ASSERT_EQUAL(p->operands[p->insns[1].operand].mark, MARK_WRITE);
    CU_ASSERT_EQUAL(p->operands[p->insns[1].operand].offset, 1024);
    free(text);
    program_free(p);
}

static void at_limit(const struct program *p, bool over, const char *message)
{
    struct error error = {""};
    enum status s = program_check(p, &error);
    if (over)
        refused_expect(s, error.text, message);
    else
        CU_ASSERT_EQUAL(s, STATUS_OK);
}

/* counts at their limits and one beyond */
#define FIVE "<compute:0 <compute:0 <compute:0 <compute:0 <compute:0 "
static void test_limits(void)
{
    struct error error;
    for (uint32_t over = 0; over < 2; over++) {
        struct program *p = random_program(1, 40), *q;
        while (p->nslots < LIMIT_SLOTS + over)
            program_slot(p, "s", SLOT_COORD, 1, 1);
        at_limit(p, over, "4097 slots, at most 4096 are allowed");
        program_free(p);

        p = random_program(2, 40);
        while (p->nrings < LIMIT_RINGS + over)
            program_ring(p, "r", 1);
        at_limit(p, over, "4097 rings, at most 4096 are allowed");
        program_free(p);

        p = random_program(3, 40);
        struct bucket b = {.name = "b", .elements = 1, .tensor = p->ntensors, .count_slot = NONE};
        while (p->nbuckets < LIMIT_BUCKETS + over)
            program_bucket(p, &b);
        at_limit(p, over, "65537 buckets, at most 65536 are allowed");
        program_free(p);

        CU_ASSERT_EQUAL_FATAL(program_parse(small_program, strlen(small_program), &q, &error), STATUS_OK);
        while (q->insns[7].nwaits < LIMIT_WAITS + over)
            program_wait(q, 7, QUEUE_COMPUTE, 0);
        at_limit(q, over,
                 "instruction 7 (7 compute ATTENTION o=%y#1[8x4]f32 lse=%y#1+1024[8x2]f32 q=%x#0[8x4]f32 "
                 "k=%x#0+256[8x2]f32 v=%x#0+512[8x2]f32 heads=2 kv=1 head=2 sequence=4 scale=0.5 window=0 softcap=0 "
                 FIVE FIVE FIVE "<compute:0 <compute:0): 17 waits, at most 16 are allowed");
        program_free(q);
    }
}

/* every shortened file is refused, and every single changed byte */
static void test_damage(void)
{
    struct program *p = random_program(11, 60), *q;
    uint8_t *bytes;
    size_t size;
    struct error error;
    CU_ASSERT_EQUAL_FATAL(program_encode(p, &bytes, &size), STATUS_OK);
    for (size_t n = 0; n < size; n++) {
        uint8_t *copy = malloc(n + 1); /* of just that size, so that sanitizers see reads beyond */
        CU_ASSERT_PTR_NOT_NULL_FATAL(copy);
        memcpy(copy, bytes, n);
        CU_ASSERT_EQUAL(program_decode(copy, n, &q, &error), STATUS_INPUT);
        free(copy);
        bytes[n] ^= (uint8_t)(1u << n % 8);
        CU_ASSERT_EQUAL(program_decode(bytes, size, &q, &error), STATUS_INPUT);
        bytes[n] ^= (uint8_t)(1u << n % 8);
    }
    free(bytes);
    program_free(p);
}

/* the same with hashes made to fit: refused, or a program that passes all checks and has this very form */
static void test_forgery(void)
{
    uint64_t state = 5;
    uint32_t accepted = 0;
    for (uint64_t seed = 0; seed < 8; seed++) {
        struct program *p = random_program(seed, 40), *q;
        uint8_t *bytes, *again;
        size_t size, again_size;
        struct error error;
        CU_ASSERT_EQUAL_FATAL(program_encode(p, &bytes, &size), STATUS_OK);
        uint8_t *copy = malloc(size);
        CU_ASSERT_PTR_NOT_NULL_FATAL(copy);
        for (int k = 0; k < 500; k++) {
            size_t n = k % 3 ? size : size - random_next(&state) % 20;
            memcpy(copy, bytes, size);
            for (int j = 0; j <= k % 4; j++)
                copy[32 + random_next(&state) % (n - 32)] ^= (uint8_t)(1u << random_next(&state) % 8);
            repair_file(copy, n, isa_fingerprint());
            if (program_decode(copy, n, &q, &error) != STATUS_OK)
                continue;
            accepted++;
            CU_ASSERT_EQUAL(program_check(q, &error), STATUS_OK);
            CU_ASSERT_EQUAL(program_encode(q, &again, &again_size), STATUS_OK);
            CU_ASSERT(again_size == n && !memcmp(copy, again, n));
            free(again);
            program_free(q);
        }
        free(copy);
        free(bytes);
        program_free(p);
    }
    CU_ASSERT(accepted > 100);
}

static void expect_decode(uint8_t *bytes, size_t size, const char *message)
{
    struct program *p;
    struct error error = {""};
    refused_expect(program_decode(bytes, size, &p, &error), error.text, message);
    CU_ASSERT_PTR_NULL(p);
}

static void test_headers(void)
{
    struct program *p = random_program(3, 30);
    uint8_t *bytes;
    size_t size;
    char message[200];
    struct error error;
    CU_ASSERT_EQUAL_FATAL(program_encode(p, &bytes, &size), STATUS_OK);
    expect_decode(bytes, 0, "not a program file");
    snprintf(message, sizeof message, "%zu bytes long instead of %zu", size - 1, size);
    expect_decode(bytes, size - 1, message);
    bytes[0] = 'X';
    expect_decode(bytes, size, "not a program file");
    bytes[0] = 'L';
    bytes[8] = 1;
    expect_decode(bytes, size, "a program file of version 1, this build reads version 3");
    bytes[8] = 3;
    repair_file(bytes, size, 0x1234);
    snprintf(message, sizeof message,
             "written for another instruction set: 0000000000001234, this build has %016" PRIx64,
             isa_fingerprint());
    expect_decode(bytes, size, message);
    repair_file(bytes, size, isa_fingerprint());
    bytes[12] = 6;
    expect_decode(bytes, size, "its header is damaged");
    bytes[12] = 7;
    bytes[size - 1] ^= 1;
    expect_decode(bytes, size, "its section 6 is damaged");
    bytes[size - 1] ^= 1;
    free(bytes);

    p->arena_bytes = 0;
    CU_ASSERT_EQUAL(program_check(p, &error), STATUS_OK);
    CU_ASSERT_EQUAL_FATAL(program_encode(p, &bytes, &size), STATUS_OK);
    expect_decode(bytes, size, "its buffers have no place");
    free(bytes);
    p->insns[1].seq = p->insns[0].seq;
    CU_ASSERT_EQUAL(program_encode(p, &bytes, &size), STATUS_BUG);
    program_free(p);
}

static void test_files(void)
{
    struct program *p = random_program(3, 30), *q;
    char path[] = "/tmp/test_program_XXXXXX", message[300];
    struct error error;
    uint8_t *bytes;
    size_t size;
    int fd = mkstemp(path);
    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_EQUAL_FATAL(program_encode(p, &bytes, &size), STATUS_OK);
    CU_ASSERT_EQUAL(write(fd, bytes, size), (ssize_t)size);
    CU_ASSERT_EQUAL(program_read(path, &q, &error), STATUS_OK);
    CU_ASSERT_EQUAL(q->ninsns, 30);
    program_free(q);
    CU_ASSERT_EQUAL(write(fd, "x", 1), 1);
    enum status s = program_read(path, &q, &error);
    snprintf(message, sizeof message, "%s: %zu bytes long instead of %zu", path, size + 1, size);
    refused_expect(s, error.text, message);
    close(fd);
    unlink(path);
    s = program_read(path, &q, &error);
    snprintf(message, sizeof message, "%s: No such file or directory", path);
    refused_expect(s, error.text, message);
    refused_expect(program_read("/tmp", &q, &error), error.text, "/tmp: it is a folder, not a file");
    free(bytes);
    program_free(p);
}

/* reordering keeps every instruction's text but for the positions in its waits, which follow their targets */
static void test_permute(void)
{
    struct program *p = random_program(21, 300);
    uint32_t order[300], back[300], position[300], count[NQUEUES], total = 0;
    size_t n, m;
    char *before = print(p, &n);
    uint64_t state = 3;
    for (uint32_t i = 0; i < 300; i++)
        order[i] = i;
    for (uint32_t i = 300; i-- > 1;) {
        uint32_t k = (uint32_t)(random_next(&state) % (i + 1)), t = order[i];
        order[i] = order[k];
        order[k] = t;
    }
    for (uint32_t i = 0; i < 300; i++)
        back[order[i]] = i;
    program_permute(p, order);
    program_positions(p, position, count);
    for (uint32_t q = 0; q < NQUEUES; q++)
        total += count[q];
    CU_ASSERT_EQUAL(total, 300);
    for (uint32_t i = 0, seen[NQUEUES] = {0}; i < 300; i++)
        CU_ASSERT_EQUAL(position[i], seen[p->insns[i].queue]++);
    char *between = print(p, &m);
    CU_ASSERT(strcmp(before, between) != 0);
    program_permute(p, back);
    char *after = print(p, &m);
    CU_ASSERT_STRING_EQUAL(before, after);
    free(before);
    free(between);
    free(after);
    program_free(p);
}

static void test_set_waits(void)
{
    struct program *p;
    struct error error;
    const struct wait list[] = {{QUEUE_DP, 9}, {QUEUE_COMPUTE, 0}, {QUEUE_COMPUTE, 1}, {QUEUE_TP, 0}};
    const uint32_t first[] = {1, 1, 1, 2, 4, 4, 4, 4, 4};
    CU_ASSERT_EQUAL_FATAL(program_parse(small_program, strlen(small_program), &p, &error), STATUS_OK);
    program_set_waits(p, list, first);
    CU_ASSERT_EQUAL(p->nwaits, 3);
    CU_ASSERT_EQUAL(p->insns[1].nwaits, 0);
    CU_ASSERT_EQUAL(p->insns[2].nwaits, 1);
    CU_ASSERT_EQUAL(p->insns[3].nwaits, 2);
    CU_ASSERT_EQUAL(p->waits[p->insns[3].wait + 1].queue, QUEUE_TP);
    CU_ASSERT_EQUAL(program_check(p, &error), STATUS_OK);
    program_free(p);
}

/* what is out of range is bad and 0 */
static void test_reader(void)
{
    struct bytes b = {0};
    bytes_number(&b, 7);
    bytes_number(&b, 8);
    bytes_number(&b, 3);
    struct reader r = {b.at, b.at + b.n, false};
    CU_ASSERT(read_below(&r, 8) == 7 && !r.bad);
    CU_ASSERT(read_below(&r, 8) == 0 && r.bad);
    free(b.at);
    b = (struct bytes){0};
    bytes_signed(&b, -4);
    bytes_signed(&b, 5);
    bytes_signed(&b, -5);
    bytes_signed(&b, 6);
    r = (struct reader){b.at, b.at + b.n, false};
    CU_ASSERT(read_offset(&r, 4, 10) == 0 && !r.bad);
    CU_ASSERT(read_offset(&r, 4, 10) == 9 && !r.bad);
    struct reader above = r;
    CU_ASSERT(read_offset(&r, 4, 10) == 0 && r.bad);
    above.at++;
    CU_ASSERT(read_offset(&above, 4, 10) == 0 && above.bad);
    free(b.at);
    b = (struct bytes){0};
    bytes_number(&b, 2);
    bytes_number(&b, 1);
    bytes_number(&b, 1);
    r = (struct reader){b.at, b.at + b.n, false};
    CU_ASSERT(read_count(&r) == 2 && !r.bad);
    r = (struct reader){b.at, b.at + b.n - 1, false}; /* one item of two is there */
    CU_ASSERT(read_count(&r) == 0 && r.bad);
    free(b.at);
    static const uint8_t text[] = {2, 'a', 'b', 2, 'a', 'b', 3, 'a', 'b'};
    char name[3] = "xx";
    r = (struct reader){text, text + sizeof text, false};
    read_text(&r, name, 3);
    CU_ASSERT_STRING_EQUAL(name, "ab");
    read_text(&r, name, 2); /* no room for its end */
    CU_ASSERT(!name[0] && !r.bad && r.at == text + 6);
    read_text(&r, name, 3);
    CU_ASSERT(!name[0] && r.bad);
    r = (struct reader){text, text + 7, false};
    CU_ASSERT(read_real(&r) == 0 && r.bad && r.at == r.end);
    uint8_t endless[10];
    memset(endless, 0x80, sizeof endless);
    for (size_t n = 0; n <= sizeof endless; n += 5) {
        r = (struct reader){endless, endless + n, false};
        CU_ASSERT(read_number(&r) == 0 && r.bad && r.at == r.end);
    }
}

/* whole numbers of the text form, to the ends of their ranges */
static void test_numbers(void)
{
    static const struct {
        const char *text;
        bool fine;
        int64_t value;
    } rows[] = {{"0", true, 0},
                {"-7", true, -7},
                {"9223372036854775807", true, INT64_MAX},
                {"-9223372036854775808", true, INT64_MIN},
                {"9223372036854775808", false, 0},
                {"-9223372036854775809", false, 0},
                {"x", false, 0}};
    struct error error;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct scan s = {rows[i].text, rows[i].text + strlen(rows[i].text), 1, &error};
        int64_t v = 0;
        CU_ASSERT_EQUAL(scan_i64(&s, &v) == STATUS_OK, rows[i].fine);
        CU_ASSERT(!rows[i].fine || v == rows[i].value);
    }
    uint32_t narrow = 0;
    struct scan most = {"4294967295", NULL, 1, &error}, more = {"4294967296", NULL, 1, &error};
    most.end = most.at + 10;
    more.end = more.at + 10;
    CU_ASSERT(scan_u32(&most, &narrow) == STATUS_OK && narrow == UINT32_MAX);
    CU_ASSERT_NOT_EQUAL(scan_u32(&more, &narrow), STATUS_OK);
}

void program_refusals(void)
{
    test_limits();
    test_headers();
    test_files();
}

void suite_program(void)
{
    CU_pSuite s = CU_add_suite("program", NULL, NULL);
    CU_add_test(s, "round trips", test_round_trips);
    CU_add_test(s, "all rows seen", test_all_rows_seen);
    CU_add_test(s, "size", test_size);
    CU_add_test(s, "small", test_small);
    CU_add_test(s, "limits", test_limits);
    CU_add_test(s, "damage", test_damage);
    CU_add_test(s, "forgery", test_forgery);
    CU_add_test(s, "headers", test_headers);
    CU_add_test(s, "files", test_files);
    CU_add_test(s, "numbers out of range", test_reader);
    CU_add_test(s, "whole numbers as text", test_numbers);
    CU_add_test(s, "permute", test_permute);
    CU_add_test(s, "set waits", test_set_waits);
}
