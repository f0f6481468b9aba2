#ifndef LLMC_PROGRAM_SCAN_H
#define LLMC_PROGRAM_SCAN_H

/* Words of the text form: a scanner that never leaves its line.  Private to program_parse.c.
 *
 * What fails writes "line N: ..." into `error` and returns STATUS_INPUT. */

#include "runtime/error.h"
#include "runtime/isa.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct scan {
    const char *at, *end; /* of the current line */
    uint32_t line;        /* from 1 */
    struct error *error;
};

enum status scan_fault(const struct scan *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* the text at the current position, for messages, as the arguments of "%.*s": up to 20 characters */
#define SCAN_HERE(s) (int)((s)->end - (s)->at > 20 ? 20 : (s)->end - (s)->at), (s)->at

void scan_spaces(struct scan *s);
/* these two first skip spaces */
bool scan_end(struct scan *s);
bool scan_char(struct scan *s, char c);
/* accepts a whole word and the spaces around it */
bool scan_word(struct scan *s, const char *word);
enum status scan_expect(struct scan *s, const char *word);
/* one of n words, as a number */
enum status scan_choice(struct scan *s, const char *const *words, size_t n, uint32_t *i);
enum status scan_dtype(struct scan *s, enum dtype *d);

/* numbers without spaces before them */
enum status scan_u64(struct scan *s, uint64_t *v);
enum status scan_u32(struct scan *s, uint32_t *v);
enum status scan_i64(struct scan *s, int64_t *v);
enum status scan_real(struct scan *s, double *v);
/* the word, then the number */
enum status scan_keyword_u64(struct scan *s, const char *word, uint64_t *v);
enum status scan_keyword_u32(struct scan *s, const char *word, uint32_t *v);

/* Reads everything up to a character that cannot be in a name.  `to` is filled up with zeros. */
enum status scan_name(struct scan *s, char *to, size_t size);
/* Reads an index, then a name: items are printed with their index so that people can find them; it must be the next
 * one. */
enum status scan_item(struct scan *s, uint32_t next, char *name, size_t size);

#endif
