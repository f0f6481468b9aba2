/* Words of a line of the text form; see program_scan.h. */

#include "tests/runtime/program_scan.h"

#include "runtime/program_words.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status scan_fault(const struct scan *s, const char *fmt, ...)
{
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return error_set(s->error, STATUS_INPUT, "line %" PRIu32 ": %s", s->line, text);
}

void scan_spaces(struct scan *s)
{
    while (s->at < s->end && *s->at == ' ')
        s->at++;
}

bool scan_end(struct scan *s)
{
    scan_spaces(s);
    return s->at == s->end;
}

bool scan_char(struct scan *s, char c)
{
    if (s->at == s->end || *s->at != c)
        return false;
    s->at++;
    return true;
}

bool scan_word(struct scan *s, const char *word)
{
    size_t n = strlen(word);
    scan_spaces(s);
    if ((size_t)(s->end - s->at) < n || memcmp(s->at, word, n) != 0)
        return false;
    if (s->at + n < s->end && s->at[n] != ' ')
        return false;
    s->at += n;
    scan_spaces(s);
    return true;
}

enum status scan_expect(struct scan *s, const char *word)
{
    return scan_word(s, word) ? STATUS_OK : scan_fault(s, "expected '%s' at '%.*s'", word, SCAN_HERE(s));
}

enum status scan_u64(struct scan *s, uint64_t *v)
{
    const char *start = s->at;
    *v = 0;
    for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++)
        if (__builtin_mul_overflow(*v, 10u, v) || __builtin_add_overflow(*v, (uint64_t)(*s->at - '0'), v))
            return scan_fault(s, "a number that does not fit 64 bits");
    return s->at > start ? STATUS_OK : scan_fault(s, "expected a number");
}

enum status scan_u32(struct scan *s, uint32_t *v)
{
    uint64_t wide;
    TRY(scan_u64(s, &wide));
    *v = (uint32_t)wide;
    return wide <= UINT32_MAX ? STATUS_OK : scan_fault(s, "%" PRIu64 " does not fit 32 bits", wide);
}

enum status scan_i64(struct scan *s, int64_t *v)
{
    bool negative = scan_char(s, '-');
    uint64_t wide;
    TRY(scan_u64(s, &wide));
    if (wide > (uint64_t)INT64_MAX + negative)
        return scan_fault(s, "a number that does not fit 64 bits");
    *v = negative ? (int64_t)(0 - wide) : (int64_t)wide;
    return STATUS_OK;
}

enum status scan_real(struct scan *s, double *v)
{
    char text[64], *end;
    size_t n = 0;
    while (s->at < s->end && *s->at != ' ' && n + 1 < sizeof text)
        text[n++] = *s->at++;
    text[n] = 0;
    *v = strtod(text, &end);
    return n && !*end ? STATUS_OK : scan_fault(s, "'%s' is not a number", text);
}

enum status scan_name(struct scan *s, char *to, size_t size)
{
    size_t n = 0;
    memset(to, 0, size);
    while (s->at<s->end && * s->at> ' ' && *s->at <= '~' && !strchr(PROGRAM_NAME_ENDS, *s->at)) {
        if (n + 1 == size)
            return scan_fault(s, "a name of more than %zu characters", size - 1);
        to[n++] = *s->at++;
    }
    return n ? STATUS_OK : scan_fault(s, "expected a name");
}

enum status scan_choice(struct scan *s, const char *const *words, size_t n, uint32_t *i)
{
    scan_spaces(s);
    for (*i = 0; *i < n; ++*i)
        if (scan_word(s, words[*i]))
            return STATUS_OK;
    return scan_fault(s, "unknown word at '%.*s'", SCAN_HERE(s));
}

enum status scan_dtype(struct scan *s, enum dtype *d)
{
    for (unsigned i = 0; i < NDTYPES; i++)
        if (scan_word(s, isa_dtype_name((enum dtype)i))) {
            *d = (enum dtype)i;
            return STATUS_OK;
        }
    return scan_fault(s, "unknown dtype");
}

enum status scan_item(struct scan *s, uint32_t next, char *name, size_t size)
{
    uint32_t i;
    TRY(scan_u32(s, &i));
    if (i != next)
        return scan_fault(s, "number %" PRIu32 " where %" PRIu32 " is next", i, next);
    scan_spaces(s);
    return scan_name(s, name, size);
}

enum status scan_keyword_u64(struct scan *s, const char *word, uint64_t *v)
{
    TRY(scan_expect(s, word));
    return scan_u64(s, v);
}

enum status scan_keyword_u32(struct scan *s, const char *word, uint32_t *v)
{
    TRY(scan_expect(s, word));
    return scan_u32(s, v);
}
