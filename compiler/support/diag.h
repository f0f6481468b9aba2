#ifndef LLMC_DIAG_H
#define LLMC_DIAG_H

/* Diagnostics: the only printer of messages about a user's input.
 *
 *   llama.llm:11:18: error: unknown attention 'gqaa'
 *      11 |             attn gqaa(heads=128, kv=8, head=128)
 *         |                  ^~~~ did you mean 'gqa'?
 *      note: llama.llm:35: 'keep tp within node'
 *      help: drop either line, or allow tp in [8]
 *
 * Messages are collected (at most 20 errors, then "too many errors") and printed sorted by source and position.
 * All text is copied into the arena.  A span with source NULL prints the message without a place. */

#include "compiler/support/arena.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct source {
    const char *name; /* as the user wrote it */
    const char *text; /* size bytes, then a 0 */
    size_t size;
    bool imported; /* named by an input file, not by the user: its lines are never echoed */
};

struct span {
    const struct source *source;
    uint32_t start, length; /* bytes */
};

enum severity { SEVERITY_WARNING, SEVERITY_ERROR };

struct diag;

struct diag *diag_new(struct arena *a);

/* What long work is at, on stderr, in a line that the next one overwrites and an empty one ends; for those who asked.
 */
void diag_show_progress(struct diag *d, bool shown);
bool diag_shows_progress(const struct diag *d);
void diag_progress(const struct diag *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Start a message.  code is a short stable word for --json, such as "unknown-word". */
void diag_error(struct diag *d, struct span at, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void diag_warning(struct diag *d, struct span at, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Complete the message started last: the words beside the caret, one note elsewhere, one way out. */
void diag_caret(struct diag *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void diag_note(struct diag *d, struct span at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void diag_help(struct diag *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* all messages of another that lives in the same arena, as if they came now */
void diag_append(struct diag *d, const struct diag *from);

int diag_errors(const struct diag *d);
int diag_warnings(const struct diag *d);
/* the sentence of the error that came first; "" without one */
const char *diag_first(const struct diag *d);
/* is there an error of this code? */
bool diag_has(const struct diag *d, const char *code);
void diag_print(const struct diag *d, FILE *out, bool colour);
/* JSON array of {file, line, column, length, severity, code, message, notes, fix} */
void diag_print_json(const struct diag *d, FILE *out);

/* line and column (in characters) from 1 of a byte offset */
void source_position(const struct source *s, uint32_t offset, uint32_t *line, uint32_t *column);

/* Read a whole regular file of at most max_bytes; NULL after one diag_error() without a place. */
struct source *source_read(struct arena *a, struct diag *d, const char *path, size_t max_bytes);

/* The candidate nearest to word by edit distance if it is near enough to be meant, else NULL. */
const char *diag_nearest(const char *word, const char *const *candidates, size_t n);

#endif
