#ifndef LLMC_UNITS_H
#define LLMC_UNITS_H

/* Numbers with units, as people write them in model and cluster files: 128_256, 16Mi, 80GiB, 400Gb/s,
 * 989TFLOP/s, 60d.
 *
 * One reader for all kinds: a number (digits, `_` between digits, fraction, exponent) and, glued to it, a
 * unit. Nothing is guessed: upper and lower case count, trailing characters, signs, inf, nan and hex are
 * refused. Whole values stay exact up to 2^64 - 1.  Independent of the locale. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum units_kind { UNITS_COUNT, UNITS_BYTES, UNITS_BYTES_S, UNITS_FLOP_S, UNITS_SECONDS };

struct units_value {
    enum units_kind kind;
    bool whole;       /* value is an integer below 2^64 */
    uint64_t integer; /* when whole */
    double real;      /* always; finite */
};

/* Why a text was refused: what is wrong, and what to write instead ("" when there is nothing to offer). */
struct units_error {
    char message[120], hint[120];
};

/* Any kind, told by its unit. */
bool units_any(const char *text, size_t length, struct units_value *v, struct units_error *e);
/* The kind that must stand here; a value of another kind is refused with a hint. */
bool units_value(const char *text, size_t length, enum units_kind want, struct units_value *v, struct units_error *e);

/* The common cases of units_value(): whole counts; bytes, rounded down to whole ones; base units otherwise.
 */
bool units_count(const char *text, size_t length, uint64_t *count, struct units_error *e);
bool units_bytes(const char *text, size_t length, uint64_t *bytes, struct units_error *e);
bool units_bytes_s(const char *text, size_t length, double *bytes_s, struct units_error *e);
bool units_flop_s(const char *text, size_t length, double *flop_s, struct units_error *e);
bool units_seconds(const char *text, size_t length, double *seconds, struct units_error *e);
/* a plain number without a unit, such as 0.92 or 1e-5 */
bool units_real(const char *text, size_t length, double *value, struct units_error *e);

const char *units_kind_name(enum units_kind k); /* "a memory size" */

/* Printing: a small text by value, so that units_show_bytes(n).s can stand in an argument list. */
struct units_text {
    char s[48];
};
struct units_text units_show_commas(uint64_t n);                  /* 16,000,000: for sentences */
struct units_text units_show_count(uint64_t n, const char *what); /* 1 GPU, 16,384 GPUs */
struct units_text units_show_rate(double v);                      /* 317.0, from 1,000 on 13,244: tokens per second */
struct units_text units_show_literal(uint64_t n);     /* 16Mi or 15_998_976: can be pasted, reads back equal */
struct units_text units_show_real(double v);          /* shortest decimal that reads back equal: 1e-05, 0.95 */
struct units_text units_show_bytes(uint64_t bytes);   /* 81.3GiB */
struct units_text units_show_bytes_s(double bytes_s); /* 50GB/s */
struct units_text units_show_flop_s(double flop_s);   /* 989TFLOP/s */
struct units_text units_show_seconds(double s);       /* 2.5us, 13.1s, 54d */

#endif
