/* Numbers with units: what is read, exactly; what is refused, with its words; printing reads back. */

#include "compiler/support/strbuf.h"
#include "compiler/support/units.h"
#include "compiler/support/vec.h"

#include <CUnit/Basic.h>
#include <stdio.h>
#include <string.h>

static void test_any(void)
{
    static const struct {
        const char *text;
        enum units_kind kind;
        bool whole;
        double real;
    } rows[] = {
        {"0", UNITS_COUNT, true, 0},
        {"126", UNITS_COUNT, true, 126},
        {"128_256", UNITS_COUNT, true, 128256},
        {"512K", UNITS_COUNT, true, 512000},
        {"16Mi", UNITS_COUNT, true, 16777216},
        {"15.6T", UNITS_COUNT, true, 15.6e12},
        {"1.5Ki", UNITS_COUNT, true, 1536},
        {"10.5", UNITS_COUNT, false, 10.5},
        {"1e5", UNITS_COUNT, true, 1e5},
        {"1e-5", UNITS_COUNT, false, 1e-5},
        {"1000e-3", UNITS_COUNT, true, 1},
        {"80GiB", UNITS_BYTES, true, 85899345920.0},
        {"80GB", UNITS_BYTES, true, 80e9},
        {"0.5B", UNITS_BYTES, false, 0.5},
        {"400Gb/s", UNITS_BYTES_S, true, 50e9},
        {"50GB/s", UNITS_BYTES_S, true, 50e9},
        {"1b/s", UNITS_BYTES_S, false, 0.125},
        {"989TFLOP/s", UNITS_FLOP_S, true, 989e12},
        {"5us", UNITS_SECONDS, false, 5e-6},
        {"3.5s", UNITS_SECONDS, false, 3.5},
        {"2min", UNITS_SECONDS, true, 120},
        {"60d", UNITS_SECONDS, true, 5184000},
        {"1.5h", UNITS_SECONDS, true, 5400},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct units_value v;
        struct units_error e;
        CU_ASSERT_FATAL(units_any(rows[i].text, strlen(rows[i].text), &v, &e));
        CU_ASSERT_EQUAL(v.kind, rows[i].kind);
        CU_ASSERT_EQUAL(v.whole, rows[i].whole);
        CU_ASSERT_EQUAL(v.real, rows[i].real);
        CU_ASSERT(!v.whole || (double)v.integer == rows[i].real);
    }
}

static void test_exact(void)
{
    struct units_error e;
    uint64_t n = 0;
    CU_ASSERT(units_count("18446744073709551615", 20, &n, &e));
    CU_ASSERT_EQUAL(n, UINT64_MAX);
    CU_ASSERT_FALSE(units_count("18446744073709551616", 20, &n, &e));
    CU_ASSERT(units_count("9007199254740993", 16, &n, &e)); /* 2^53 + 1 is no double */
    CU_ASSERT_EQUAL(n, UINT64_C(9007199254740993));
    CU_ASSERT_FALSE(units_count("20000000Ti", 10, &n, &e));
    CU_ASSERT_STRING_EQUAL(e.message, "number out of range");
    CU_ASSERT(units_bytes("0.1KiB", 6, &n, &e)); /* 102.4 */
    CU_ASSERT_EQUAL(n, 102);
    CU_ASSERT(units_count("12345", 3, &n, &e)); /* only the length that is given is read */
    CU_ASSERT_EQUAL(n, 123);
}

static void test_refused(void)
{
    static const struct {
        const char *text;
        enum units_kind want;
        const char *message, *hint;
    } rows[] = {
        {"5k", UNITS_COUNT, "unknown unit 'k'", "write 5K (thousands) or 5Ki (1024)"},
        {"", UNITS_COUNT, "not a number", "a count is written like 126, 128_256, 512K or 16Mi"},
        {"-1", UNITS_COUNT, "not a number", "a count is written like 126, 128_256, 512K or 16Mi"},
        {"inf", UNITS_COUNT, "not a number", "a count is written like 126, 128_256, 512K or 16Mi"},
        {"nan", UNITS_SECONDS, "not a number", "a time is written like 5us, 3.5s or 60d"},
        {"0x10", UNITS_COUNT, "unknown unit 'x10'", "a count is written like 126, 128_256, 512K or 16Mi"},
        {"1_", UNITS_COUNT, "unknown unit '_'", "a count is written like 126, 128_256, 512K or 16Mi"},
        {"1__0", UNITS_COUNT, "unknown unit '__0'", "a count is written like 126, 128_256, 512K or 16Mi"},
        {"1e999", UNITS_COUNT, "number out of range", ""},
        {"1e-999", UNITS_COUNT, "number out of range", ""},
        {"80", UNITS_BYTES, "a memory size needs a unit", "write 80GiB or 80GB"},
        {"80G", UNITS_BYTES, "'G' is a count, not a memory size", "write 80GiB or 80GB"},
        {"80gib", UNITS_BYTES, "unknown unit 'gib'", "write 80GiB"},
        {"80Gb", UNITS_BYTES, "unknown unit 'Gb'", "write 80GB"},
        {"400GBps", UNITS_BYTES_S, "unknown unit 'GBps'", "write 400GB/s"},
        {"400Gbps", UNITS_BYTES_S, "unknown unit 'Gbps'", "write 400Gb/s"},
        {"400Gbit/s", UNITS_BYTES_S, "unknown unit 'Gbit/s'", "write 400Gb/s (bits) or 400GB/s (bytes)"},
        {"50GB", UNITS_BYTES_S, "'GB' is a memory size, not a bandwidth", "write 50GB/s"},
        {"989TFLOPS", UNITS_FLOP_S, "unknown unit 'TFLOPS'", "write 989TFLOP/s"},
        {"5", UNITS_SECONDS, "a time needs a unit", "a time is written like 5us, 3.5s or 60d"},
        {"5 s", UNITS_SECONDS, "unknown unit ' s'", "a time is written like 5us, 3.5s or 60d"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct units_value v;
        struct units_error e;
        CU_ASSERT_FALSE(units_value(rows[i].text, strlen(rows[i].text), rows[i].want, &v, &e));
        CU_ASSERT_STRING_EQUAL(e.message, rows[i].message);
        CU_ASSERT_STRING_EQUAL(e.hint, rows[i].hint);
    }
}

static void test_plain(void)
{
    double v = 0;
    struct units_error e;
    CU_ASSERT(units_real("0.92", 4, &v, &e));
    CU_ASSERT_EQUAL(v, 0.92);
    CU_ASSERT_FALSE(units_real("1K", 2, &v, &e));
    CU_ASSERT(units_bytes_s("400Gb/s", 7, &v, &e) && v == 50e9);
    CU_ASSERT(units_flop_s("1PFLOP/s", 8, &v, &e) && v == 1e15);
    CU_ASSERT(units_seconds("10ns", 4, &v, &e) && v == 1e-8);
    CU_ASSERT_STRING_EQUAL(units_kind_name(UNITS_BYTES), "a memory size");
}

static void test_print(void)
{
    static const uint64_t counts[] = {0,        1,        999,  9999,  10000,     16000000,
                                      15998976, 16777216, 8192, 16384, UINT64_MAX};
    CU_ASSERT_STRING_EQUAL(units_show_commas(16000000).s, "16,000,000");
    CU_ASSERT_STRING_EQUAL(units_show_rate(317.04).s, "317.0");
    CU_ASSERT_STRING_EQUAL(units_show_rate(999.96).s, "1,000");
    CU_ASSERT_STRING_EQUAL(units_show_rate(1668591.4).s, "1,668,591");
    CU_ASSERT_STRING_EQUAL(units_show_count(1, "GPU").s, "1 GPU");
    CU_ASSERT_STRING_EQUAL(units_show_count(0, "node").s, "0 nodes");
    CU_ASSERT_STRING_EQUAL(units_show_count(UINT64_MAX, "node").s, "18,446,744,073,709,551,615 nodes");
    CU_ASSERT_STRING_EQUAL(units_show_literal(16777216).s, "16Mi");
    CU_ASSERT_STRING_EQUAL(units_show_literal(15998976).s, "15_998_976");
    CU_ASSERT_STRING_EQUAL(units_show_bytes(UINT64_C(85899345920)).s, "80GiB");
    CU_ASSERT_STRING_EQUAL(units_show_bytes(UINT64_C(87295210291)).s, "81.3GiB");
    CU_ASSERT_STRING_EQUAL(units_show_bytes(0).s, "0B");
    CU_ASSERT_STRING_EQUAL(units_show_bytes_s(50e9).s, "50GB/s");
    CU_ASSERT_STRING_EQUAL(units_show_flop_s(989e12).s, "989TFLOP/s");
    CU_ASSERT_STRING_EQUAL(units_show_seconds(2.5e-6).s, "2.5us");
    CU_ASSERT_STRING_EQUAL(units_show_seconds(5184000).s, "60d");
    CU_ASSERT_STRING_EQUAL(units_show_real(0.1).s, "0.1");
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        struct units_text t = units_show_literal(counts[i]);
        struct units_error e;
        uint64_t back = 1;
        CU_ASSERT(units_count(t.s, strlen(t.s), &back, &e));
        CU_ASSERT_EQUAL(back, counts[i]);
    }
}

/* What rounds to a thousand of a unit is one of the next, and what does not is not. */
static void test_next_unit(void)
{
    static const char *const rates[] = {"B/s", "KB/s", "MB/s", "GB/s", "TB/s"};
    static const char *const flops[] = {"FLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s", "EFLOP/s"};
    char want[32];
    for (size_t i = 1; i < ARRAY_LEN(rates); i++) {
        double whole = (double[]){1e3, 1e6, 1e9, 1e12}[i - 1];
        snprintf(want, sizeof want, "1%s", rates[i]);
        CU_ASSERT_STRING_EQUAL(units_show_bytes_s(0.9995 * whole).s, want);
        snprintf(want, sizeof want, "999%s", rates[i - 1]);
        CU_ASSERT_STRING_EQUAL(units_show_bytes_s(0.9994 * whole).s, want);
    }
    for (size_t i = 2; i < ARRAY_LEN(flops); i++) { /* there is no KFLOP/s */
        double whole = (double[]){1e9, 1e12, 1e15, 1e18}[i - 2];
        snprintf(want, sizeof want, "1%s", flops[i]);
        CU_ASSERT_STRING_EQUAL(units_show_flop_s(0.9995 * whole).s, want);
        snprintf(want, sizeof want, "999%s", flops[i - 1]);
        CU_ASSERT_STRING_EQUAL(units_show_flop_s(0.9994 * whole).s, want);
    }
}

static void test_wrap(void)
{
    static const struct {
        const char *text;
        size_t column, indent, width;
        const char *want;
    } cases[] = {{"", 0, 0, 9, ""},
                 {"one two three", 0, 2, 8, "one two\n  three"},
                 {"one two three", 0, 2, 7, "one two\n  three"},
                 {"one two three", 1, 2, 7, "one\n  two\n  three"},
                 {"longer than all", 0, 1, 3, "longer\n than\n all"},
                 {" \xc2\xb5 \xe2\x96\x91 x ", 0, 0, 5, "\xc2\xb5 \xe2\x96\x91 x"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct strbuf b = {0};
        strbuf_text(&b, "");
        strbuf_wrap(&b, cases[i].text, cases[i].column, cases[i].indent, cases[i].width);
        CU_ASSERT_STRING_EQUAL(b.text, cases[i].want);
        strbuf_free(&b);
    }
}

void suite_units(void);
void suite_units(void)
{
    CU_pSuite s = CU_add_suite("units", NULL, NULL);
    CU_add_test(s, "every kind is read", test_any);
    CU_add_test(s, "whole numbers are exact", test_exact);
    CU_add_test(s, "refusals and their hints", test_refused);
    CU_add_test(s, "plain numbers", test_plain);
    CU_add_test(s, "printing reads back", test_print);
    CU_add_test(s, "a thousand of a unit is one of the next", test_next_unit);
    CU_add_test(s, "lines break at blanks", test_wrap);
}
