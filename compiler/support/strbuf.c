/* String buffer: doubling growth; running out of memory ends the process as in arena.c. */

#include "compiler/support/strbuf.h"
#include "compiler/support/arena.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void reserve(struct strbuf *b, size_t more)
{
    size_t want = b->length + more + 1;
    if (want <= b->room)
        return;
    size_t room = b->room ? b->room : 64;
    while (room < want)
        room *= 2;
    char *text = realloc(b->text, room);
    if (!text)
        arena_exhausted(room);
    b->text = text;
    b->room = room;
}

void strbuf_free(struct strbuf *b)
{
    free(b->text);
    *b = (struct strbuf){0};
}

void strbuf_clear(struct strbuf *b)
{
    reserve(b, 0);
    b->length = 0;
    b->text[0] = 0;
}

void strbuf_bytes(struct strbuf *b, const void *bytes, size_t n)
{
    reserve(b, n);
    if (n)
        memcpy(b->text + b->length, bytes, n);
    b->length += n;
    b->text[b->length] = 0;
}

void strbuf_text(struct strbuf *b, const char *s)
{
    strbuf_bytes(b, s, strlen(s));
}

void strbuf_char(struct strbuf *b, char c)
{
    strbuf_bytes(b, &c, 1);
}

void strbuf_varint(struct strbuf *b, uint64_t v)
{
    for (; v > 127; v >>= 7)
        strbuf_char(b, (char)(v | 128));
    strbuf_char(b, (char)v);
}

void strbuf_repeat(struct strbuf *b, char c, size_t n)
{
    reserve(b, n);
    memset(b->text + b->length, c, n);
    b->length += n;
    b->text[b->length] = 0;
}

void strbuf_printf(struct strbuf *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    if (n >= 0) {
        reserve(b, (size_t)n);
        vsnprintf(b->text + b->length, (size_t)n + 1, fmt, ap);
        b->length += (size_t)n;
    }
    va_end(ap);
}

/* length of the well-formed UTF-8 sequence at s, 0 when there is none (RFC 3629) */
static size_t utf8_length(const unsigned char *s)
{
    static const struct {
        unsigned char mask, lead, least, most;
    } form[] = {{0xe0, 0xc0, 0x80, 0xbf}, {0xf0, 0xe0, 0x80, 0xbf}, {0xf8, 0xf0, 0x80, 0xbf}};
    if (s[0] < 0x80)
        return 1;
    for (size_t extra = 1; extra <= 3; extra++) {
        if ((s[0] & form[extra - 1].mask) != form[extra - 1].lead)
            continue;
        unsigned least = form[extra - 1].least, most = form[extra - 1].most;
        if (s[0] < 0xc2 || s[0] > 0xf4)
            return 0;
        if (s[0] == 0xe0)
            least = 0xa0;
        if (s[0] == 0xed)
            most = 0x9f;
        if (s[0] == 0xf0)
            least = 0x90;
        if (s[0] == 0xf4)
            most = 0x8f;
        if (s[1] < least || s[1] > most)
            return 0;
        for (size_t i = 2; i <= extra; i++)
            if ((s[i] & 0xc0) != 0x80)
                return 0;
        return extra + 1;
    }
    return 0;
}

void strbuf_wrap(struct strbuf *b, const char *s, size_t column, size_t indent, size_t width)
{
    for (bool first = true; *(s += strspn(s, " ")); first = false) {
        size_t n = strcspn(s, " "), seen = 0;
        for (size_t i = 0; i < n; i++)
            seen += ((unsigned char)s[i] & 0xc0) != 0x80; /* characters, not bytes */
        if (!first && column + 1 + seen > width) {
            strbuf_char(b, '\n');
            strbuf_repeat(b, ' ', indent);
            column = indent;
        } else if (!first) {
            strbuf_char(b, ' ');
            column++;
        }
        strbuf_bytes(b, s, n);
        column += seen;
        s += n;
    }
}

void strbuf_json_string(struct strbuf *b, const char *text)
{
    strbuf_char(b, '"');
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        size_t n = utf8_length(s);
        if (!n) {
            strbuf_text(b, "\xef\xbf\xbd");
            s++;
        } else if (*s == '"' || *s == '\\') {
            strbuf_printf(b, "\\%c", *s++);
        } else if (*s < 0x20) {
            strbuf_printf(b, "\\u%04x", *s++);
        } else {
            strbuf_bytes(b, s, n);
            s += n;
        }
    }
    strbuf_char(b, '"');
}

void strbuf_json_number(struct strbuf *b, double v)
{
    char text[40];
    if (!isfinite(v)) {
        strbuf_text(b, "null");
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        double back = strtod(text, NULL);
        if (back <= v && back >= v)
            break;
    }
    strbuf_text(b, text);
}

void strbuf_json(struct strbuf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    for (size_t n = strcspn(fmt, "%'"); strbuf_bytes(b, fmt, n), *(fmt += n); n = strcspn(++fmt, "%'")) {
        if (*fmt == '\'') {
            strbuf_char(b, '"');
            continue;
        }
        bool wide = *++fmt == 'l';
        fmt += strspn(fmt, "l");
        const char *text = *fmt == 's' ? va_arg(ap, const char *) : NULL;
        if (text)
            strbuf_json_string(b, text);
        else if (*fmt == 's')
            strbuf_text(b, "null");
        else if (*fmt == 'g')
            strbuf_json_number(b, va_arg(ap, double));
        else if (*fmt == 'd')
            strbuf_text(b, va_arg(ap, int) ? "true" : "false");
        else
            strbuf_printf(b, "%llu", wide ? va_arg(ap, unsigned long long) : va_arg(ap, unsigned));
    }
    va_end(ap);
}
