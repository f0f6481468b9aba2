#ifndef LLMC_STRBUF_H
#define LLMC_STRBUF_H

/* A growing, always terminated string.  Start with {0}; release with strbuf_free().
 * text is never NULL after the first append.  Interacts with nothing but malloc. */

#include <stddef.h>
#include <stdint.h>

struct strbuf {
    char *text;
    size_t length, room;
};

void strbuf_free(struct strbuf *b);
void strbuf_clear(struct strbuf *b);
void strbuf_bytes(struct strbuf *b, const void *bytes, size_t n);
void strbuf_text(struct strbuf *b, const char *s);
void strbuf_char(struct strbuf *b, char c);
void strbuf_repeat(struct strbuf *b, char c, size_t n);
void strbuf_varint(struct strbuf *b, uint64_t v); /* LEB128 (DWARF 5, section 7.6): 7 bits a byte, the lowest first */
void strbuf_printf(struct strbuf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* s behind what the line holds up to `column`, broken at blanks so that no line is wider than `width` where that is
 * possible; further lines start at `indent` */
void strbuf_wrap(struct strbuf *b, const char *s, size_t column, size_t indent, size_t width);

/* A piece of JSON, with ' for ": %s is a string with its quotes, or null; %g a number as strbuf_json_number() writes
 * it; %d a truth value; %u, %lu and %llu are whole numbers. */
void strbuf_json(struct strbuf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* s as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD */
void strbuf_json_string(struct strbuf *b, const char *s);
/* a double as JSON: shortest form that reads back equal, null for nan and inf */
void strbuf_json_number(struct strbuf *b, double v);

#endif
