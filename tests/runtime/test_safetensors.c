/* The safetensors reader's rules, each with its message; the writer through the reader; one file and many. */

#include "runtime/safetensors.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void make_folder(char dir[64])
{
    strcpy(dir, "/tmp/llmc-weights-XXXXXX");
    CU_ASSERT_FATAL(mkdtemp(dir) != NULL);
}

static void remove_folder(const char *dir)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    CU_ASSERT(system(command) == 0);
}

/* length, header, then `data` bytes 0, 1, 2 ... */
static void write_file(const char *path, uint64_t length, const char *header, size_t data)
{
    FILE *out = fopen(path, "wb");
    CU_ASSERT_FATAL(out != NULL);
    for (int b = 0; b < 8; b++)
        fputc((int)(length >> (8 * b) & 255), out);
    fputs(header, out);
    for (size_t i = 0; i < data; i++)
        fputc((int)i, out);
    fclose(out);
}

static enum status try_open(const char *path, char tail[512])
{
    struct safetensors *s;
    struct error error = {""};
    enum status st = safetensors_open(path, &s, &error);
    const char *at = strstr(error.text, ".safetensors");
    snprintf(tail, 512, "%.511s", at ? at + strlen(".safetensors: ") : error.text);
    if (st == STATUS_OK)
        safetensors_close(s);
    return st;
}

static const struct {
    const char *header;
    size_t data;
    const char *message; /* "" = accepted */
} headers[] = {
    {"{}", 0, ""},
    {"{}   ", 0, ""},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, ""},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[0,0]}}", 0, ""},
    {"{\"__metadata__\":{\"k\":\"v\"},\"b\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[2,10]},"
     "\"a\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[0,2]}}",
     10, ""},
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1, ""},
    {"[]", 0, "not safetensors: its header does not begin with '{'"},
    {" {}", 0, "not safetensors: its header does not begin with '{'"},
    {"{\"a\":1}", 0, "tensor 'a' is not an object"},
    {"{} x", 0, "header: end of file expected near 'x'"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"F32\",\"shape\":[1],"
     "\"data_offsets\":[0,4]}}",
     4, "header: duplicate object key near '\"a\"'"},
    {"{\"\xff\":1}", 0, "header: unable to decode byte 0xff near '\"'"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 0,
     "tensor 'a' must hold dtype, shape and two data_offsets, and nothing else"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4,
     "tensor 'a' must hold dtype, shape and two data_offsets, and nothing else"},
    {"{\"a\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
     "tensor 'a' has an unknown dtype"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
     "tensor 'a' has more than 8 dimensions"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4,
     "tensor 'a' has a dimension that is no natural number"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4,
     "tensor 'a' has a dimension that is no natural number"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}", 4,
     "tensor 'a' has a shape whose product overflows"},
    {"{\"a\":{\"dtype\":\"F64\",\"shape\":[1152921504606846976],\"data_offsets\":[0,0]}}", 0,
     "tensor 'a' has a size that is no whole number of bytes"},
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2,
     "tensor 'a' has a size that is no whole number of bytes"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,5]}}", 4,
     "tensor 'a' has data_offsets outside of the data"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4,
     "tensor 'a' has data_offsets outside of the data"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,3]}}", 4,
     "tensor 'a' has data_offsets that do not fit its shape and dtype"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", 2,
     "tensor 'a' leaves a hole or overlaps another"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],"
     "\"data_offsets\":[1,3]}}",
     3, "tensor 'b' leaves a hole or overlaps another"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 3, "2 bytes behind the last tensor"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ is not an object of strings"},
    {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object of strings"},
};

static void test_headers(void)
{
    char dir[64], path[128], tail[512];
    make_folder(dir);
    snprintf(path, sizeof path, "%s/x.safetensors", dir);
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        write_file(path, strlen(headers[i].header), headers[i].header, headers[i].data);
        CU_ASSERT(try_open(path, tail) == (headers[i].message[0] ? STATUS_INPUT : STATUS_OK));
        CU_ASSERT_STRING_EQUAL(tail, headers[i].message);
        if (strcmp(tail, headers[i].message) != 0)
            printf("\n%zu: %s\n", i, tail);
    }
    write_file(path, 3, "{}", 0);
    CU_ASSERT(try_open(path, tail) == STATUS_INPUT);
    CU_ASSERT_STRING_EQUAL(tail, "not safetensors: its header of 3 bytes does not fit in the file");
    write_file(path, UINT64_MAX - 3, "{}", 0);
    CU_ASSERT(try_open(path, tail) == STATUS_INPUT);
    CU_ASSERT_STRING_EQUAL(
        tail, "not safetensors: its header of 18446744073709551612 bytes does not fit in the file");
    remove_folder(dir);
}

static void test_values(void)
{
    char dir[64], path[128];
    struct error error;
    struct safetensors *s;
    float x[4];
    make_folder(dir);
    snprintf(path, sizeof path, "%s/x.safetensors", dir);
    FILE *out = fopen(path, "wb");
    const char header[] = "{\"h\":{\"dtype\":\"F16\",\"shape\":[5],\"data_offsets\":[0,10]},"
                          "\"b\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[10,14]}}";
    const uint16_t data[] = {0x3c00, 0xc100, 0x0001, 0x7c00, 0x7e00, 0x3f80, 0xc000};
    uint64_t length = strlen(header);
    CU_ASSERT_FATAL(out && fwrite(&length, 8, 1, out) == 1 && fwrite(header, length, 1, out) == 1 &&
                    fwrite(data, sizeof data, 1, out) == 1 && fclose(out) == 0);
    CU_ASSERT_FATAL(safetensors_open(path, &s, &error) == STATUS_OK);
    CU_ASSERT(safetensors_count(s) == 2);
    CU_ASSERT_STRING_EQUAL(safetensors_at(s, 0)->name, "b");
    CU_ASSERT(safetensors_find(s, "nothing") == NULL);
    safetensors_load(safetensors_find(s, "h"), 0, 1, 3, x);
    CU_ASSERT(x[0] == 1 && x[1] == -2.5f && x[2] == ldexpf(1, -24));
    safetensors_load(safetensors_find(s, "h"), 3, 1, 2, x);
    CU_ASSERT(isinf(x[0]) && isnan(x[1]));
    safetensors_load(safetensors_find(s, "b"), 1, 1, 1, x);
    CU_ASSERT(x[0] == -2);
    safetensors_close(s);
    remove_folder(dir);
}

/* two writers of one layout, then the reader; small files force several */
static void check_round_trip(uint64_t file_bytes, uint32_t files)
{
    char dir[64], path[128];
    struct error error;
    struct safetensors *s;
    static const struct weight_plan t[3] = {{.name = "a", .ndim = 1, .shape = {1, 5}},
                                             {.name = "b\"\\", .ndim = 2, .shape = {2, 3}},
                                             {.name = "c", .ndim = 2, .shape = {4, 1}}};
    struct weight_files *maker, *helper;
    make_folder(dir);
    CU_ASSERT_FATAL(safetensors_create(dir, "model", t, 3, file_bytes, true, &maker, &error) == STATUS_OK);
    CU_ASSERT_FATAL(safetensors_create(dir, "model", t, 3, file_bytes, false, &helper, &error) == STATUS_OK);
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t e = 0; e < (i == 0 ? 5u : i == 1 ? 6u : 4u); e++) {
            float x = (float)(100 * i + e);
            memcpy(safetensors_target(e & 1 ? helper : maker, i) + 4 * e, &x, 4);
        }
    CU_ASSERT(safetensors_finish(helper, false, &error) == STATUS_OK);
    CU_ASSERT(safetensors_finish(maker, true, &error) == STATUS_OK);
    CU_ASSERT_FATAL(safetensors_open(dir, &s, &error) == STATUS_OK);
    const struct weight *b = safetensors_find(s, "b\"\\"), *a = safetensors_find(s, "a");
    float x[3];
    CU_ASSERT_FATAL(a && b && safetensors_count(s) == 3);
    CU_ASSERT(a->ndim == 1 && a->shape[0] == 5 && b->ndim == 2 && b->shape[0] == 2 && b->shape[1] == 3);
    safetensors_load(b, 1, 2, 3, x);
    CU_ASSERT(x[0] == 101 && x[1] == 103 && x[2] == 105);
    CU_ASSERT(((uintptr_t)a->data & 4095) == 0);
    safetensors_close(s);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    CU_ASSERT((access(path, F_OK) == 0) == (files > 1));
    remove_folder(dir);
}

static void test_round_trip(void)
{
    check_round_trip(1 << 20, 1);
    check_round_trip(24, 3);
    check_round_trip(44, 2);
}

static void test_index(void)
{
    static const struct {
        const char *json, *message;
    } cases[] = {{"{}", "has no weight_map"},
                 {"{\"weight_map\":{\"a\":\"../x\"}}", "the file of 'a' is no plain file name"},
                 {"{\"weight_map\":{\"a\":7}}", "the file of 'a' is no plain file name"},
                 {"{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}}",
                  "tensor 'a' is in two files"},
                 {"{", "string or '}' expected near end of file"}};
    char dir[64], path[128];
    struct error error;
    struct safetensors *s;
    const char one[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
    make_folder(dir);
    snprintf(path, sizeof path, "%s/one.safetensors", dir);
    write_file(path, strlen(one), one, 1);
    snprintf(path, sizeof path, "%s/two.safetensors", dir);
    write_file(path, strlen(one), one, 1);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FILE *out = fopen(path, "w");
        CU_ASSERT_FATAL(out && fputs(cases[i].json, out) >= 0 && fclose(out) == 0);
        CU_ASSERT(safetensors_open(dir, &s, &error) == STATUS_INPUT);
        CU_ASSERT_STRING_EQUAL(strrchr(error.text, ':') + 2, cases[i].message);
    }
    FILE *out = fopen(path, "w");
    CU_ASSERT_FATAL(out && fputs("{\"weight_map\":{}}", out) >= 0 && fclose(out) == 0);
    CU_ASSERT_FATAL(safetensors_open(dir, &s, &error) == STATUS_OK);
    CU_ASSERT(safetensors_count(s) == 0 && !safetensors_find(s, "a"));
    safetensors_close(s);
    remove_folder(dir);
}

void suite_safetensors(void);
void suite_safetensors(void)
{
    CU_pSuite s = CU_add_suite("safetensors", NULL, NULL);
    CU_add_test(s, "the format's rules", test_headers);
    CU_add_test(s, "dtypes", test_values);
    CU_add_test(s, "written files read back", test_round_trip);
    CU_add_test(s, "index of shards", test_index);
}
