/* Token files: every accepted form, and every way of being refused with its exact message. */

#include "compiler/inspect/tokens.h"
#include "runtime/data.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct folder_of_files {
    char dir[64];
};

static void open_folder(struct folder_of_files *f)
{
    strcpy(f->dir, "/tmp/llmc-data-XXXXXX");
    CU_ASSERT_FATAL(mkdtemp(f->dir) != NULL);
}

static void close_folder(const struct folder_of_files *f, const char *const *names)
{
    char path[128];
    for (; *names; names++) {
        snprintf(path, sizeof path, "%s/%s", f->dir, *names);
        unlink(path);
    }
    rmdir(f->dir);
}

static char *write_bytes(const struct folder_of_files *f, const char *name, const void *bytes, size_t n,
                         char path[128])
{
    snprintf(path, 128, "%s/%s", f->dir, name);
    FILE *out = fopen(path, "wb");
    CU_ASSERT_FATAL(out && fwrite(bytes, 1, n, out) == n && fclose(out) == 0);
    return path;
}

/* what the message says behind the folder's name */
static enum status try_open(const char *path, uint64_t sequence, uint64_t vocab, char tail[256])
{
    struct batch_source *s;
    struct error error = {""};
    enum status st = data_open(path, sequence, vocab, &s, &error);
    const char *slash = strrchr(error.text, '/');
    snprintf(tail, 256, "%.255s", slash ? slash + 1 : error.text);
    if (st == STATUS_OK)
        data_close(s);
    return st;
}

/* What changes the hash: every id of a small file; of a large one the first and the last, and most places where blocks
 * of its size lie side by side. */
static void test_hash(void)
{
    static const struct {
        uint64_t tokens, step, least; /* tried every `step`: at least so many change the hash */
    } cases[] = {{9, 1, 9}, {(1 << 20), 4099, 256}, {(1 << 20) + 1, 4099, 200}, {3 << 20, 1 << 14, 60}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct batch_source *s;
        uint64_t n = cases[k].tokens, seen = 0, tried = 0;
        CU_ASSERT_FATAL(data_blank(n - 1, 1, &s) == STATUS_OK);
        uint64_t before = data_hash(s);
        for (uint64_t at = 0; at < n; at += cases[k].step, tried++) {
            data_set(s, at, 1);
            seen += data_hash(s) != before;
            data_set(s, at, 0);
        }
        CU_ASSERT(seen >= cases[k].least && (seen == tried || k >= 2));
        data_set(s, 0, 1);
        CU_ASSERT(data_hash(s) != before);
        data_set(s, 0, 0);
        data_set(s, n - 1, 1);
        CU_ASSERT(data_hash(s) != before);
        data_close(s);
    }
    struct batch_source *a = NULL, *b = NULL;
    CU_ASSERT_FATAL(data_blank(4, 1, &a) == STATUS_OK);
    CU_ASSERT_FATAL(data_blank(5, 1, &b) == STATUS_OK);
    CU_ASSERT(data_hash(a) != data_hash(b));
    data_close(a);
    data_close(b);
}

static void test_flat(void)
{
    struct folder_of_files f;
    char path[128];
    struct error error;
    uint16_t ids[11];
    struct batch_source *s;
    int32_t out[16];
    open_folder(&f);
    for (uint16_t i = 0; i < 11; i++)
        ids[i] = (uint16_t)(100 + i);
    write_bytes(&f, "a.bin", ids, sizeof ids, path);
    CU_ASSERT_FATAL(data_open(path, 3, 200, &s, &error) == STATUS_OK);
    CU_ASSERT(data_ntokens(s) == 11);
    CU_ASSERT(data_nsamples(s) == 3);
    CU_ASSERT(data_check(s, 10, &error) == STATUS_OK);
    data_copy(s, 4, 1, 3, out, 2); /* sample 4 mod 3 = 1: tokens 3 .. 6 */
    CU_ASSERT(out[0] == 104 && out[2] == 105 && out[4] == 106);
    data_close(s);
    CU_ASSERT_FATAL(data_open(path, 3, 105, &s, &error) == STATUS_OK);
    CU_ASSERT(data_check(s, 1, &error) == STATUS_OK); /* ids 100 .. 103 */
    CU_ASSERT(data_check(s, 3, &error) == STATUS_INPUT);
    CU_ASSERT_STRING_EQUAL(error.text, "token 5 of the data is id 105, but the vocabulary has 105 entries");
    data_close(s);
    uint32_t wide[] = {1, 70000, 2};
    write_bytes(&f, "w.bin", wide, sizeof wide, path);
    CU_ASSERT_FATAL(data_open(path, 2, 70001, &s, &error) == STATUS_OK);
    data_copy(s, 0, 0, 2, out, 1);
    CU_ASSERT(out[1] == 70000);
    data_close(s);
    close_folder(&f, (const char *const[]){"a.bin", "w.bin", NULL});
}

/* a sample is read with the token behind it, which is the next one's first */
static void test_samples(void)
{
    struct folder_of_files f;
    char path[128];
    struct error error;
    uint16_t ids[20] = {0};
    open_folder(&f);
    for (uint32_t n = 2; n <= 20; n++)
        for (uint32_t sequence = 1; sequence < n; sequence++) {
            struct batch_source *s;
            uint32_t whole = 0;
            while ((whole + 1) * sequence + 1 <= n)
                whole++;
            write_bytes(&f, "n.bin", ids, n * sizeof *ids, path);
            CU_ASSERT_FATAL(data_open(path, sequence, 200, &s, &error) == STATUS_OK);
            CU_ASSERT_EQUAL(data_nsamples(s), whole);
            data_close(s);
        }
    close_folder(&f, (const char *const[]){"n.bin", NULL});
}

static void test_header(void)
{
    static const struct {
        int32_t magic, version, count;
        size_t bytes; /* behind the header */
        const char *message;
    } cases[] = {{20240520, 1, 4, 8, ""},
                 {20240801, 7, 2, 8, ""},
                 {20240520, 2, 4, 8, "h.bin: header version 2, expected 1"},
                 {20240801, 1, 2, 8, "h.bin: header version 1, expected 7"},
                 {20240520, 1, 5, 8, "h.bin: header promises 5 tokens, 8 bytes follow"},
                 {20240520, 1, -1, 8, "h.bin: header promises 4294967295 tokens, 8 bytes follow"},
                 {20240520, 1, 1, 2, "h.bin: 1 tokens, at least 2 are needed for one sequence"}};
    struct folder_of_files f;
    char path[128], tail[256];
    open_folder(&f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t file[256 + 4] = {cases[i].magic, cases[i].version, cases[i].count};
        write_bytes(&f, "h.bin", file, 1024 + cases[i].bytes, path);
        CU_ASSERT(try_open(path, 1, 256, tail) == (cases[i].message[0] ? STATUS_INPUT : STATUS_OK));
        CU_ASSERT_STRING_EQUAL(tail, cases[i].message);
    }
    close_folder(&f, (const char *const[]){"h.bin", NULL});
}

static void test_refused(void)
{
    struct folder_of_files f;
    char path[128], tail[256];
    open_folder(&f);
    write_bytes(&f, "odd.bin", "abc", 3, path);
    CU_ASSERT(try_open(path, 1, 256, tail) == STATUS_INPUT);
    CU_ASSERT_STRING_EQUAL(tail, "odd.bin: 3 bytes are not a whole number of uint16 ids");
    CU_ASSERT(try_open(path, 1, 70000, tail) == STATUS_INPUT);
    CU_ASSERT_STRING_EQUAL(tail, "odd.bin: 3 bytes are not a whole number of uint32 ids");
    write_bytes(&f, "none.bin", "", 0, path);
    CU_ASSERT(try_open(path, 1, 256, tail) == STATUS_INPUT);
    CU_ASSERT_STRING_EQUAL(tail, "none.bin: not a file with tokens in it");
    snprintf(path, sizeof path, "%s/missing", f.dir);
    CU_ASSERT(try_open(path, 1, 256, tail) == STATUS_INPUT);
    CU_ASSERT_STRING_EQUAL(tail, "missing: No such file or directory");
    close_folder(&f, (const char *const[]){"odd.bin", "none.bin", NULL});
}

/* a Megatron index of two sequences over a .bin of `bin` bytes */
struct index_file {
    uint8_t bytes[200];
    size_t n;
};

static void append(struct index_file *x, uint64_t value, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        x->bytes[x->n++] = (uint8_t)(value >> (8 * i));
}

static struct index_file make_index(uint8_t code, uint64_t version, uint64_t first, uint64_t second,
                                    uint64_t pointer)
{
    struct index_file x = {{0}, 0};
    memcpy(x.bytes, "MMIDIDX\0\0", 9);
    x.n = 9;
    append(&x, version, 8);
    append(&x, code, 1);
    append(&x, 2, 8);
    append(&x, 3, 8);
    append(&x, first, 4);
    append(&x, second, 4);
    append(&x, 0, 8);
    append(&x, pointer, 8);
    for (uint64_t d = 0; d < 3; d++)
        append(&x, d, 8);
    return x;
}

static void test_megatron(void)
{
    static const struct {
        uint8_t code;
        uint64_t version, first, second, pointer;
        int cut; /* bytes taken from the end, or added */
        const char *message;
    } cases[] = {{8, 1, 3, 2, 6, 0, ""},
                 {8, 1, 3, 2, 6, -2, ""}, /* with modes */
                 {1, 1, 4, 6, 4, 0, ""},
                 {4, 1, 1, 1, 4, 0, "m.idx: describes 8 bytes, the .bin file has 10"},
                 {7, 1, 3, 2, 6, 0, "m.idx: ids of type code 7; known are 1 (u8), 4 (i32), 8 (u16)"},
                 {8, 2, 3, 2, 6, 0, "m.idx: index version 2, only 1 is known"},
                 {8, 1, 3, 2, 5, 0, "m.idx: sequence 1 does not follow the one before it"},
                 {8, 1, 3, 3, 6, 0, "m.idx: sequence 1 ends beyond the .bin file"},
                 {8, 1, 0xffffffff, 2, 6, 0, "m.idx: sequence 0 does not follow the one before it"},
                 {8, 1, 3, 2, 6, -1, "m.idx: 1 bytes behind its arrays"},
                 {8, 1, 3, 2, 6, 1, "m.idx: 2 sequences and 3 documents do not fit in its 81 bytes"},
                 {8, 1, 3, 2, 6, 60, "m.idx: not a Megatron index"}};
    struct folder_of_files f;
    char bin[128], idx[128], tail[256];
    uint16_t ids[5] = {1, 2, 3, 4, 5};
    open_folder(&f);
    write_bytes(&f, "m.bin", ids, sizeof ids, bin);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct index_file x =
            make_index(cases[i].code, cases[i].version, cases[i].first, cases[i].second, cases[i].pointer);
        write_bytes(&f, "m.idx", x.bytes, (size_t)((int)x.n - cases[i].cut), idx);
        CU_ASSERT(try_open(i & 1 ? idx : bin, 2, 256, tail) ==
                  (cases[i].message[0] ? STATUS_INPUT : STATUS_OK));
        CU_ASSERT_STRING_EQUAL(tail, cases[i].message);
    }
    struct index_file x = make_index(8, 1, 3, 2, 6);
    x.bytes[26] = 1; /* one document: what lies behind the sequences is less than one more would be */
    write_bytes(&f, "m.idx", x.bytes, x.n - 16, idx);
    CU_ASSERT_EQUAL(try_open(idx, 2, 256, tail), STATUS_OK);
    CU_ASSERT_STRING_EQUAL(tail, "");
    close_folder(&f, (const char *const[]){"m.bin", "m.idx", NULL});
}

/* ids in memory, which change between two looks at them; -1 is an id */
static void test_memory(void)
{
    struct batch_source *s;
    size_t bytes;
    int32_t out[8];
    CU_ASSERT_FATAL(data_blank(3, 2, &s) == STATUS_OK);
    CU_ASSERT(data_ntokens(s) == 7 && data_nsamples(s) == 3);
    CU_ASSERT(!data_mapping(s, &bytes) && !bytes);
    data_copy(s, 0, 0, 3, out, 1);
    CU_ASSERT(!out[0] && !out[1] && !out[2]);
    for (int32_t i = 0; i < 7; i++)
        data_set(s, (uint64_t)i, i == 3 ? -1 : 70000 + i);
    data_copy(s, 4, 0, 3, out, 1); /* sample 4 mod 3 = 1: tokens 2 .. 4 */
    CU_ASSERT(out[0] == 70002 && out[1] == -1 && out[2] == 70004);
    data_copy(s, 2, 2, 1, out, 1);
    CU_ASSERT(out[0] == 70006);
    data_close(s);
    CU_ASSERT_EQUAL(data_blank(1ull << 40, 1ull << 40, &s), STATUS_WORLD);
    CU_ASSERT_EQUAL(data_blank(1ull << 31, 1ull << 31, &s), STATUS_WORLD);
}

static void test_tokens(void)
{
    struct folder_of_files f;
    char text[128], out[128];
    struct error error;
    uint64_t n;
    int32_t ids[8];
    struct batch_source *s;
    open_folder(&f);
    write_bytes(&f, "t.txt", "h\xffllo!", 6, text);
    snprintf(out, sizeof out, "%s/t.bin", f.dir);
    for (int header = 0; header < 2; header++) {
        CU_ASSERT(tokens_write(text, out, header, &n, &error) == STATUS_OK);
        CU_ASSERT(n == 6);
        CU_ASSERT_FATAL(data_open(out, 5, 256, &s, &error) == STATUS_OK);
        data_copy(s, 0, 0, 6, ids, 1);
        CU_ASSERT(ids[0] == 'h' && ids[1] == 255 && ids[5] == '!' && data_ntokens(s) == 6);
        data_close(s);
    }
    write_bytes(&f, "e.txt", "", 0, text);
    CU_ASSERT(tokens_write(text, out, true, &n, &error) == STATUS_INPUT);
    CU_ASSERT(strstr(error.text, "/e.txt: empty") != NULL);
    CU_ASSERT(tokens_write(text, "/nowhere/x", true, &n, &error) == STATUS_WORLD);
    CU_ASSERT_STRING_EQUAL(error.text, "/nowhere/x: No such file or directory");
    CU_ASSERT(tokens_write("/nowhere/y", out, true, &n, &error) == STATUS_INPUT);
    CU_ASSERT_STRING_EQUAL(error.text, "/nowhere/y: No such file or directory");
    CU_ASSERT(tokens_write(f.dir, out, true, &n, &error) == STATUS_INPUT);
    CU_ASSERT(strstr(error.text, ": it is a folder, not a file") != NULL &&
              strncmp(error.text, f.dir, strlen(f.dir)) == 0);
    close_folder(&f, (const char *const[]){"t.txt", "t.bin", "e.txt", NULL});
}

void suite_data(void);
void suite_data(void)
{
    CU_pSuite s = CU_add_suite("data", NULL, NULL);
    CU_add_test(s, "bare files", test_flat);
    CU_add_test(s, "hash", test_hash);
    CU_add_test(s, "whole samples", test_samples);
    CU_add_test(s, "headers", test_header);
    CU_add_test(s, "refused files", test_refused);
    CU_add_test(s, "Megatron pairs", test_megatron);
    CU_add_test(s, "in memory", test_memory);
    CU_add_test(s, "byte-level tokens", test_tokens);
}
