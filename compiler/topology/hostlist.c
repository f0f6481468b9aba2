/* Host lists in Slurm's notation.
 *
 * A pattern is a row of parts: literal text, or the text of a bracket.  Counting multiplies the sizes of the
 * brackets with overflow checks; expanding is an odometer over the brackets, the rightmost fastest.  Both
 * walk the text itself; only the names are allocated.  Not supported, because Slurm refuses them too:
 * brackets in brackets, empty brackets. */

#include "compiler/topology/hostlist.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BRACKETS_MAX 8
#define DIGITS_MAX 12

struct range {
    uint64_t low, high;
    int width; /* 0 = unpadded */
};

/* one pattern of the list: bytes from .. end; brackets hold the bytes between [ and ] */
struct pattern {
    size_t from, end;
    size_t nbrackets;
    struct {
        size_t from, end;
    } bracket[BRACKETS_MAX];
    uint64_t count;  /* names that it stands for */
    size_t name_max; /* bytes of the longest name */
};

static bool refuse(struct hostlist_error *e, size_t at, size_t length, const char *message)
{
    e->at = at;
    e->length = length;
    snprintf(e->message, sizeof e->message, "%s", message);
    return false;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '-' || c == '_' || c == '.';
}

static bool read_number(const char *s, size_t end, size_t *at, uint64_t *value, struct hostlist_error *e)
{
    size_t from = *at;
    *value = 0;
    while (*at < end && is_digit(s[*at]) && *at - from < DIGITS_MAX)
        *value = *value * 10 + (uint64_t)(s[(*at)++] - '0');
    if (*at == from)
        return refuse(e, from, from < end ? 1 : 0, "a number is missing in a bracket");
    if (*at < end && is_digit(s[*at]))
        return refuse(e, from, *at - from, "a number in a bracket has more than 12 digits");
    return true;
}

/* One `7` or `001-128` at *at inside a bracket. */
static bool read_range(const char *s, size_t end, size_t *at, struct range *r, struct hostlist_error *e)
{
    size_t from = *at;
    if (!read_number(s, end, at, &r->low, e))
        return false;
    size_t digits = *at - from;
    r->width = digits > 1 && s[from] == '0' ? (int)digits : 0;
    r->high = r->low;
    if (*at < end && s[*at] == '-') {
        ++*at;
        if (!read_number(s, end, at, &r->high, e))
            return false;
        if (r->high < r->low)
            return refuse(e, from, *at - from, "a range runs backwards");
    }
    if (*at < end && s[*at] != ',')
        return refuse(e, *at, 1, "only digits, '-' and ',' may stand in a bracket");
    return true;
}

/* Sizes of the bracket s[from .. end): how many numbers, and the digits of the longest. */
static bool measure_bracket(const char *s, size_t from, size_t end, uint64_t *count, size_t *digits,
                            struct hostlist_error *e)
{
    *count = 0;
    *digits = 0;
    for (size_t at = from;;) {
        struct range r;
        if (!read_range(s, end, &at, &r, e))
            return false;
        *count += r.high - r.low + 1; /* at most 10^12 per 2 bytes of text: no overflow below 2^24 bytes */
        size_t wide = (size_t)snprintf(NULL, 0, "%0*" PRIu64, r.width ? r.width : 1, r.high);
        *digits = wide > *digits ? wide : *digits;
        if (at >= end)
            return true;
        at++;
    }
}

/* The pattern that starts at *at; moves *at behind it. */
static bool read_pattern(const char *s, size_t length, size_t *at, struct pattern *p, struct hostlist_error *e)
{
    *p = (struct pattern){.from = *at, .count = 1};
    size_t i = *at;
    for (; i < length && s[i] != ','; i++) {
        if (s[i] == '[') {
            const char *close = memchr(s + i, ']', length - i);
            if (!close)
                return refuse(e, i, 1, "this bracket is never closed");
            if (p->nbrackets == BRACKETS_MAX)
                return refuse(e, i, 1, "more than 8 brackets in one name");
            size_t from = i + 1, digits;
            i = (size_t)(close - s);
            p->bracket[p->nbrackets].from = from;
            p->bracket[p->nbrackets++].end = i;
            uint64_t count;
            if (!measure_bracket(s, from, i, &count, &digits, e))
                return false;
            if (__builtin_mul_overflow(p->count, count, &p->count))
                p->count = UINT64_MAX;
            p->name_max += digits;
        } else if (is_name(s[i])) {
            p->name_max++;
        } else {
            return refuse(e, i, 1,
                          s[i] == ' ' ? "a host list has no blanks" : "this character cannot stand in a host name");
        }
    }
    p->end = i;
    if (i == *at)
        return refuse(e, i, i < length ? 1 : 0, "a host name is missing");
    if (p->name_max > HOSTLIST_NAME_MAX)
        return refuse(e, p->from, p->end - p->from, "a host name has more than 255 characters");
    *at = i;
    return true;
}

/* Steps to the pattern behind a comma; false at the end of the text. */
static bool next_pattern(size_t length, size_t *at)
{
    if (*at >= length)
        return false;
    ++*at;
    return true;
}

bool hostlist_count(const char *text, size_t length, uint64_t max, uint64_t *count, struct hostlist_error *e)
{
    *count = 0;
    uint64_t bytes = 0;
    size_t at = 0;
    do {
        struct pattern p;
        if (!read_pattern(text, length, &at, &p, e))
            return false;
        if (p.count > max || *count > max - p.count) {
            refuse(e, p.from, p.end - p.from, "");
            snprintf(e->message, sizeof e->message, "this stands for more than %" PRIu64 " nodes", max);
            return false;
        }
        *count += p.count;
        bytes += p.count * (p.name_max + 1);
        if (bytes > HOSTLIST_BYTES_MAX)
            return refuse(e, p.from, p.end - p.from, "the names of this list are too long in all");
    } while (next_pattern(length, &at));
    return true;
}

/* Where an odometer stands in one bracket: the range being counted, the text behind it, the number. */
struct wheel {
    struct range range;
    size_t next;
    uint64_t value;
};

/* The range at `at`; the pattern has been read once before, so this cannot fail. */
static void wheel_load(struct wheel *w, const char *s, size_t at, size_t end)
{
    struct hostlist_error ignored;
    w->next = at;
    if (read_range(s, end, &w->next, &w->range, &ignored))
        w->value = w->range.low;
}

/* One step; false when the bracket has wrapped to its first number. */
static bool wheel_turn(struct wheel *w, const char *s, size_t from, size_t end)
{
    if (w->value < w->range.high) {
        w->value++;
        return true;
    }
    bool more = w->next < end;
    wheel_load(w, s, more ? w->next + 1 : from, end);
    return more;
}

static const char *current_name(struct arena *a, const char *s, const struct pattern *p, const struct wheel *wheels)
{
    char name[HOSTLIST_NAME_MAX + 1];
    size_t n = 0, b = 0;
    for (size_t i = p->from; i < p->end; i++) {
        if (s[i] != '[') {
            name[n++] = s[i];
            continue;
        }
        n += (size_t)snprintf(name + n, sizeof name - n, "%0*" PRIu64,
                              wheels[b].range.width ? wheels[b].range.width : 1, wheels[b].value);
        i = p->bracket[b++].end;
    }
    return arena_strndup(a, name, n);
}

static void expand_pattern(struct arena *a, const char *s, const struct pattern *p, struct hostlist *list)
{
    struct wheel wheels[BRACKETS_MAX] = {0};
    for (size_t b = 0; b < p->nbrackets; b++)
        wheel_load(&wheels[b], s, p->bracket[b].from, p->bracket[b].end);
    for (uint64_t i = 0; i < p->count; i++) {
        list->names[list->n++] = current_name(a, s, p, wheels);
        for (size_t b = p->nbrackets; b-- > 0;)
            if (wheel_turn(&wheels[b], s, p->bracket[b].from, p->bracket[b].end))
                break;
    }
}

bool hostlist_expand(struct arena *a, const char *text, size_t length, uint64_t max, struct hostlist *list,
                     struct hostlist_error *e)
{
    uint64_t count;
    *list = (struct hostlist){0};
    if (!hostlist_count(text, length, max < UINT32_MAX ? max : UINT32_MAX, &count, e))
        return false;
    list->names = ARENA_ARRAY(a, const char *, count);
    size_t at = 0;
    do {
        struct pattern p;
        if (!read_pattern(text, length, &at, &p, e))
            return false;
        expand_pattern(a, text, &p, list);
    } while (next_pattern(length, &at));
    return true;
}

/* ---- printing ---- */

/* a name around its last number: bytes from .. from + digits */
struct numbered {
    size_t from, digits;
    uint64_t value;
};

static struct numbered number_of(const char *name)
{
    size_t end = strlen(name);
    while (end && !is_digit(name[end - 1]))
        end--;
    struct numbered x = {.from = end};
    while (x.from && is_digit(name[x.from - 1]))
        x.from--;
    x.digits = end - x.from;
    for (size_t i = x.from; i < end && x.digits <= DIGITS_MAX; i++)
        x.value = x.value * 10 + (uint64_t)(name[i] - '0');
    return x;
}

/* Do two names differ in their last numbers alone? */
static bool alike(const char *a, const struct numbered *x, const char *b, const struct numbered *y)
{
    return x->digits && y->digits && x->digits <= DIGITS_MAX && y->digits <= DIGITS_MAX && x->from == y->from &&
           !memcmp(a, b, x->from) && !strcmp(a + x->from + x->digits, b + y->from + y->digits);
}

/* Names from `first` on that a range beginning there expands to: their numbers grow by one, in its width. */
static size_t print_range(struct strbuf *out, const char *const *names, size_t first, size_t end)
{
    struct numbered low = number_of(names[first]), last = low;
    bool padded = low.digits > 1 && names[first][low.from] == '0';
    size_t i = first + 1;
    for (; i < end; i++) {
        struct numbered x = number_of(names[i]);
        char wanted[24];
        size_t wide = (size_t)snprintf(wanted, sizeof wanted, "%0*" PRIu64, padded ? (int)low.digits : 1,
                                       last.value + 1);
        if (wide != x.digits || memcmp(wanted, names[i] + x.from, wide) != 0)
            break;
        last = x;
    }
    strbuf_bytes(out, names[first] + low.from, low.digits);
    if (i > first + 1) {
        strbuf_char(out, '-');
        strbuf_bytes(out, names[i - 1] + last.from, last.digits);
    }
    return i;
}

void hostlist_print(struct strbuf *out, const char *const *names, size_t n)
{
    for (size_t i = 0, end; i < n; i = end) {
        struct numbered x = number_of(names[i]);
        for (end = i + 1; end < n; end++) {
            struct numbered y = number_of(names[end]);
            if (!alike(names[i], &x, names[end], &y))
                break;
        }
        strbuf_text(out, i ? "," : "");
        if (end == i + 1) {
            strbuf_text(out, names[i]);
            continue;
        }
        strbuf_bytes(out, names[i], x.from);
        for (size_t k = i; k < end;) {
            strbuf_char(out, k == i ? '[' : ',');
            k = print_range(out, names, k, end);
        }
        strbuf_printf(out, "]%s", names[i] + x.from + x.digits);
    }
}
