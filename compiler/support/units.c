/* Numbers with units: reading and printing.
 *
 * A text is read as mantissa * 10^exp10 * 2^exp2 * multiplier with a 64-bit mantissa, so that 15.6T and 1.5Ki
 * are whole numbers exactly and 1e-5 rounds once.  One table holds all units; whatever is not in it is
 * refused, and units_hint() looks for what was probably meant.  b (bit) and B (byte) are never taken for one
 * another. Limits: 19 significant digits, exponents to +-400, results finite. */

#include "compiler/support/units.h"

#include "compiler/support/vec.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct unit {
    char name[10];
    enum units_kind kind;
    uint32_t multiplier;
    int exp10, exp2;
} units[] = {
    {"", UNITS_COUNT, 1, 0, 0},          {"K", UNITS_COUNT, 1, 3, 0},         {"M", UNITS_COUNT, 1, 6, 0},
    {"G", UNITS_COUNT, 1, 9, 0},         {"T", UNITS_COUNT, 1, 12, 0},        {"Ki", UNITS_COUNT, 1, 0, 10},
    {"Mi", UNITS_COUNT, 1, 0, 20},       {"Gi", UNITS_COUNT, 1, 0, 30},       {"Ti", UNITS_COUNT, 1, 0, 40},
    {"B", UNITS_BYTES, 1, 0, 0},         {"KB", UNITS_BYTES, 1, 3, 0},        {"MB", UNITS_BYTES, 1, 6, 0},
    {"GB", UNITS_BYTES, 1, 9, 0},        {"TB", UNITS_BYTES, 1, 12, 0},       {"KiB", UNITS_BYTES, 1, 0, 10},
    {"MiB", UNITS_BYTES, 1, 0, 20},      {"GiB", UNITS_BYTES, 1, 0, 30},      {"TiB", UNITS_BYTES, 1, 0, 40},
    {"b/s", UNITS_BYTES_S, 1, 0, -3},    {"Kb/s", UNITS_BYTES_S, 1, 3, -3},   {"Mb/s", UNITS_BYTES_S, 1, 6, -3},
    {"Gb/s", UNITS_BYTES_S, 1, 9, -3},   {"Tb/s", UNITS_BYTES_S, 1, 12, -3},  {"B/s", UNITS_BYTES_S, 1, 0, 0},
    {"KB/s", UNITS_BYTES_S, 1, 3, 0},    {"MB/s", UNITS_BYTES_S, 1, 6, 0},    {"GB/s", UNITS_BYTES_S, 1, 9, 0},
    {"TB/s", UNITS_BYTES_S, 1, 12, 0},   {"KiB/s", UNITS_BYTES_S, 1, 0, 10},  {"MiB/s", UNITS_BYTES_S, 1, 0, 20},
    {"GiB/s", UNITS_BYTES_S, 1, 0, 30},  {"TiB/s", UNITS_BYTES_S, 1, 0, 40},  {"FLOP/s", UNITS_FLOP_S, 1, 0, 0},
    {"MFLOP/s", UNITS_FLOP_S, 1, 6, 0},  {"GFLOP/s", UNITS_FLOP_S, 1, 9, 0},  {"TFLOP/s", UNITS_FLOP_S, 1, 12, 0},
    {"PFLOP/s", UNITS_FLOP_S, 1, 15, 0}, {"EFLOP/s", UNITS_FLOP_S, 1, 18, 0}, {"ns", UNITS_SECONDS, 1, -9, 0},
    {"us", UNITS_SECONDS, 1, -6, 0},     {"ms", UNITS_SECONDS, 1, -3, 0},     {"s", UNITS_SECONDS, 1, 0, 0},
    {"min", UNITS_SECONDS, 60, 0, 0},    {"h", UNITS_SECONDS, 3600, 0, 0},    {"d", UNITS_SECONDS, 86400, 0, 0},
};

/* Row per kind: its name in sentences, and an example of how it is written. */
static const struct {
    const char *name, *example;
} kinds[] = {
    [UNITS_COUNT] = {"a count", "126, 128_256, 512K or 16Mi"}, [UNITS_BYTES] = {"a memory size", "80GiB or 80GB"},
    [UNITS_BYTES_S] = {"a bandwidth", "400Gb/s or 50GB/s"},    [UNITS_FLOP_S] = {"a compute rate", "989TFLOP/s"},
    [UNITS_SECONDS] = {"a time", "5us, 3.5s or 60d"},
};

/* mantissa * 10^exp10, as written; `used` bytes of the text */
struct decimal {
    uint64_t mantissa;
    int exp10;
    size_t used;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool refuse(struct units_error *e, const char *message, const char *hint)
{
    snprintf(e->message, sizeof e->message, "%s", message);
    snprintf(e->hint, sizeof e->hint, "%s", hint);
    return false;
}

/* Append the digits from *at to the mantissa; a `_` must stand between two digits.  Returns how many digits.
 */
static int decimal_digits(const char *s, size_t n, size_t *at, struct decimal *d, bool *overflow)
{
    int digits = 0;
    while (*at < n) {
        if (is_digit(s[*at])) {
            uint64_t digit = (uint64_t)(s[*at] - '0');
            if (d->mantissa > (UINT64_MAX - digit) / 10)
                *overflow = true;
            else
                d->mantissa = d->mantissa * 10 + digit;
            digits++;
        } else if (s[*at] != '_' || !digits || s[*at - 1] == '_' || *at + 1 >= n || !is_digit(s[*at + 1])) {
            break;
        }
        ++*at;
    }
    return digits;
}

/* An exponent is taken only if digits follow: in `4em` the e belongs to the unit. */
static void decimal_exponent(const char *s, size_t n, size_t *at, struct decimal *d, bool *overflow)
{
    size_t i = *at;
    if (i >= n || (s[i] != 'e' && s[i] != 'E'))
        return;
    bool negative = ++i < n && s[i] == '-';
    if (i < n && (s[i] == '-' || s[i] == '+'))
        i++;
    if (i >= n || !is_digit(s[i]))
        return;
    int exponent = 0;
    for (; i < n && is_digit(s[i]); i++)
        exponent = exponent > 400 ? exponent : exponent * 10 + (s[i] - '0');
    if (exponent > 400)
        *overflow = true;
    d->exp10 += negative ? -exponent : exponent;
    *at = i;
}

static bool decimal_read(const char *s, size_t n, struct decimal *d, struct units_error *e)
{
    *d = (struct decimal){0};
    bool overflow = false;
    size_t at = 0;
    if (!decimal_digits(s, n, &at, d, &overflow))
        return refuse(e, "not a number", "");
    if (at + 1 < n && s[at] == '.' && is_digit(s[at + 1])) {
        at++;
        int digits = decimal_digits(s, n, &at, d, &overflow);
        d->exp10 -= digits > 400 ? 400 : digits;
    }
    decimal_exponent(s, n, &at, d, &overflow);
    d->used = at;
    return overflow ? refuse(e, "number out of range", "") : true;
}

/* v = d * unit.  Whole if the exact product is an integer below 2^64: twos are multiplied in before tens are
 * divided out. */
static bool scale(const struct decimal *d, const struct unit *u, struct units_value *v, struct units_error *e)
{
    char text[48];
    int exp10 = d->exp10 + u->exp10;
    snprintf(text, sizeof text, "%" PRIu64 "e%d", d->mantissa, exp10); /* no decimal point: same in every locale */
    v->kind = u->kind;
    v->real = ldexp(strtod(text, NULL) * u->multiplier, u->exp2);
    if (!isfinite(v->real) || (v->real == 0 && d->mantissa))
        return refuse(e, "number out of range", "");

    uint64_t m = d->mantissa;
    v->whole = !__builtin_mul_overflow(m, (uint64_t)u->multiplier, &m);
    if (u->exp2 > 0)
        v->whole = v->whole && !__builtin_mul_overflow(m, UINT64_C(1) << u->exp2, &m);
    for (; exp10 > 0 && m; exp10--)
        v->whole = v->whole && !__builtin_mul_overflow(m, UINT64_C(10), &m);
    for (; exp10 < 0 && m && v->whole; exp10++, m /= 10)
        v->whole = m % 10 == 0;
    for (int i = u->exp2; i < 0 && m && v->whole; i++, m /= 2)
        v->whole = m % 2 == 0;
    v->integer = v->whole ? m : 0;
    if (v->whole)
        v->real = (double)m;
    return true;
}

static const struct unit *unit_find(const char *s, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(units); i++)
        if (strlen(units[i].name) == n && !memcmp(units[i].name, s, n))
            return &units[i];
    return NULL;
}

/* The wanted unit that the letters differ from only in case or in a habit (GBps, TFLOPS, GiB/sec); NULL if
 * none. b and B are told apart except where the wanted kind has only one of them. */
static const struct unit *unit_meant(const char *s, size_t n, enum units_kind want)
{
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        const struct unit *u = &units[i];
        size_t stem = strcspn(u->name, "/");
        if (u->kind != want || !*u->name || n < stem || strncasecmp(u->name, s, stem) != 0)
            continue;
        if (want == UNITS_BYTES_S && u->name[stem - 1] != s[stem - 1])
            continue;
        const char *rest = s + stem;
        size_t left = n - stem;
        bool rate = want == UNITS_BYTES_S || want == UNITS_FLOP_S;
        if (!left || (left == 1 && (*rest == 's' || *rest == 'S')) ||
            (rate && ((left == 2 && !strncasecmp(rest, "ps", 2)) || (left >= 2 && *rest == '/'))))
            return u;
    }
    return NULL;
}

/* What to write instead of `number` + `suffix` where a value of kind `want` must stand. */
static void units_hint(const char *text, size_t used, size_t length, enum units_kind want, struct units_error *e)
{
    const char *suffix = text + used;
    int number = (int)(used > 40 ? 40 : used), n = (int)(length - used);
    const struct unit *meant = unit_meant(suffix, length - used, want);
    const char *prefix = n && strchr("KMGT", *suffix & ~0x20) ? (char[]){(char)(*suffix & ~0x20), 0} : "";
    if (want == UNITS_COUNT && n == 1 && *suffix == 'k')
        snprintf(e->hint, sizeof e->hint, "write %.*sK (thousands) or %.*sKi (1024)", number, text, number, text);
    else if (meant)
        snprintf(e->hint, sizeof e->hint, "write %.*s%s", number, text, meant->name);
    else if (want == UNITS_BYTES && (n == 0 || (n <= 2 && *prefix)))
        snprintf(e->hint, sizeof e->hint, "write %.*s%siB or %.*s%sB", number, text, *prefix ? prefix : "G", number,
                 text, *prefix ? prefix : "G");
    else if (want == UNITS_BYTES_S && (n == 0 || *prefix))
        snprintf(e->hint, sizeof e->hint, "write %.*s%sb/s (bits) or %.*s%sB/s (bytes)", number, text,
                 *prefix ? prefix : "G", number, text, *prefix ? prefix : "G");
    else
        snprintf(e->hint, sizeof e->hint, "%s is written like %s", kinds[want].name, kinds[want].example);
}

static bool units_read(const char *text, size_t length, const enum units_kind *want, struct units_value *v,
                       struct units_error *e)
{
    *v = (struct units_value){0};
    *e = (struct units_error){{0}, {0}};
    struct decimal d;
    if (!decimal_read(text, length, &d, e)) {
        if (want && !*e->hint && !is_digit(length ? *text : 'x'))
            snprintf(e->hint, sizeof e->hint, "%s is written like %s", kinds[*want].name, kinds[*want].example);
        return false;
    }
    size_t n = length - d.used;
    const struct unit *u = unit_find(text + d.used, n);
    if (u && (!want || u->kind == *want))
        return scale(&d, u, v, e);
    if (u && n)
        snprintf(e->message, sizeof e->message, "'%.40s' is %s, not %s", u->name, kinds[u->kind].name,
                 kinds[*want].name);
    else if (u)
        snprintf(e->message, sizeof e->message, "%s needs a unit", kinds[*want].name);
    else
        snprintf(e->message, sizeof e->message, "unknown unit '%.*s'", n > 40 ? 40 : (int)n, text + d.used);
    for (size_t i = 0; !want && !*e->hint && i < ARRAY_LEN(kinds); i++)
        if (unit_meant(text + d.used, n, (enum units_kind)i))
            units_hint(text, d.used, length, (enum units_kind)i, e);
    if (want || (!*e->hint && n == 1 && text[d.used] == 'k'))
        units_hint(text, d.used, length, want ? *want : UNITS_COUNT, e);
    return false;
}

bool units_any(const char *text, size_t length, struct units_value *v, struct units_error *e)
{
    return units_read(text, length, NULL, v, e);
}

bool units_value(const char *text, size_t length, enum units_kind want, struct units_value *v, struct units_error *e)
{
    return units_read(text, length, &want, v, e);
}

bool units_count(const char *text, size_t length, uint64_t *count, struct units_error *e)
{
    struct units_value v;
    if (!units_value(text, length, UNITS_COUNT, &v, e))
        return false;
    *count = v.integer;
    return v.whole ? true : refuse(e, v.real >= 0x1p64 ? "number out of range" : "not a whole number", "");
}

bool units_bytes(const char *text, size_t length, uint64_t *bytes, struct units_error *e)
{
    struct units_value v;
    if (!units_value(text, length, UNITS_BYTES, &v, e))
        return false;
    if (!v.whole && v.real >= 0x1p63)
        return refuse(e, "number out of range", "");
    *bytes = v.whole ? v.integer : (uint64_t)v.real;
    return true;
}

static bool units_base(const char *text, size_t length, enum units_kind want, double *value, struct units_error *e)
{
    struct units_value v;
    if (!units_value(text, length, want, &v, e))
        return false;
    *value = v.real;
    return true;
}

bool units_bytes_s(const char *text, size_t length, double *bytes_s, struct units_error *e)
{
    return units_base(text, length, UNITS_BYTES_S, bytes_s, e);
}

bool units_flop_s(const char *text, size_t length, double *flop_s, struct units_error *e)
{
    return units_base(text, length, UNITS_FLOP_S, flop_s, e);
}

bool units_seconds(const char *text, size_t length, double *seconds, struct units_error *e)
{
    return units_base(text, length, UNITS_SECONDS, seconds, e);
}

bool units_real(const char *text, size_t length, double *value, struct units_error *e)
{
    *e = (struct units_error){{0}, {0}};
    struct decimal d;
    struct units_value v = {0};
    if (!decimal_read(text, length, &d, e))
        return false;
    if (d.used != length)
        return refuse(e, "a plain number must stand here, without a unit", "");
    if (!scale(&d, &units[0], &v, e))
        return false;
    *value = v.real;
    return true;
}

const char *units_kind_name(enum units_kind k)
{
    return kinds[k].name;
}

/* digits of n in groups of three */
static struct units_text grouped(uint64_t n, char mark)
{
    struct units_text t;
    char digits[24];
    int count = snprintf(digits, sizeof digits, "%" PRIu64, n);
    size_t out = 0;
    for (int i = 0; i < count; i++) {
        if (i && (count - i) % 3 == 0)
            t.s[out++] = mark;
        t.s[out++] = digits[i];
    }
    t.s[out] = 0;
    return t;
}

struct units_text units_show_commas(uint64_t n)
{
    return grouped(n, ',');
}

struct units_text units_show_rate(double v)
{
    struct units_text t;
    if (v >= 999.95 && v < 1e18)
        return grouped((uint64_t)(v + 0.5), ',');
    snprintf(t.s, sizeof t.s, "%.1f", v);
    return t;
}

struct units_text units_show_count(uint64_t n, const char *what)
{
    struct units_text t;
    snprintf(t.s, sizeof t.s, "%.26s %.19s%s", grouped(n, ',').s, what, n == 1 ? "" : "s");
    return t;
}

struct units_text units_show_literal(uint64_t n)
{
    static const char *const binary[] = {"Ti", "Gi", "Mi", "Ki"};
    struct units_text t;
    for (int i = 0; i < 4; i++) {
        uint64_t unit = UINT64_C(1) << (40 - 10 * i);
        if (n >= 2 * unit && n % unit == 0 && n / unit < 10000 && n >= 16384) {
            snprintf(t.s, sizeof t.s, "%" PRIu64 "%s", n / unit, binary[i]);
            return t;
        }
    }
    if (n >= 10000)
        return grouped(n, '_');
    snprintf(t.s, sizeof t.s, "%" PRIu64, n);
    return t;
}

struct units_text units_show_real(double v)
{
    struct units_text t;
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(t.s, sizeof t.s, "%.*g", digits, v);
        if (strtod(t.s, NULL) == v)
            break;
    }
    return t;
}

/* v in the largest unit of the list that leaves at least 1, with three significant digits or all before the
 * point */
static struct units_text largest(double v, const char *const *names, const double *sizes, size_t n)
{
    struct units_text t;
    size_t i = 0;
    while (i + 1 < n && fabs(v) < sizes[i] * 0.9995)
        i++;
    double x = v / sizes[i];
    snprintf(t.s, sizeof t.s, "%.*f", fabs(x) >= 99.95 ? 0 : fabs(x) >= 9.995 ? 1 : 2, x);
    if (strchr(t.s, '.')) {
        size_t end = strlen(t.s);
        while (t.s[end - 1] == '0')
            t.s[--end] = 0;
        if (t.s[end - 1] == '.')
            t.s[end - 1] = 0;
    }
    strncat(t.s, names[i], sizeof t.s - strlen(t.s) - 1);
    return t;
}

struct units_text units_show_bytes(uint64_t bytes)
{
    static const char *const names[] = {"TiB", "GiB", "MiB", "KiB", "B"};
    static const double sizes[] = {0x1p40, 0x1p30, 0x1p20, 0x1p10, 1};
    return largest((double)bytes, names, sizes, ARRAY_LEN(names));
}

struct units_text units_show_bytes_s(double bytes_s)
{
    static const char *const names[] = {"TB/s", "GB/s", "MB/s", "KB/s", "B/s"};
    static const double sizes[] = {1e12, 1e9, 1e6, 1e3, 1};
    return largest(bytes_s, names, sizes, ARRAY_LEN(names));
}

struct units_text units_show_flop_s(double flop_s)
{
    static const char *const names[] = {"EFLOP/s", "PFLOP/s", "TFLOP/s", "GFLOP/s", "MFLOP/s", "FLOP/s"};
    static const double sizes[] = {1e18, 1e15, 1e12, 1e9, 1e6, 1};
    return largest(flop_s, names, sizes, ARRAY_LEN(names));
}

struct units_text units_show_seconds(double s)
{
    static const char *const names[] = {"d", "h", "min", "s", "ms", "us", "ns"};
    static const double sizes[] = {86400, 3600, 60, 1, 1e-3, 1e-6, 1e-9};
    return largest(s, names, sizes, ARRAY_LEN(names));
}
