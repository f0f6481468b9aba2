#ifndef LLMC_IMPORT_LINES_H
#define LLMC_IMPORT_LINES_H

/* Lines and words of files that programs print for people.  Escape sequences of terminals count as blanks. */

#include "compiler/support/diag.h"

#include <string.h>

struct line {
    const struct source *source;
    size_t at, end; /* what has not been read yet, without the end of the line */
    size_t next;    /* where the next line begins */
};

/* the first line, then each next one; false behind the last */
static inline struct line line_first(const struct source *s)
{
    return (struct line){.source = s};
}
bool line_next(struct line *l);
/* the next word of the line; false at its end */
bool line_word(struct line *l, struct span *word);
bool line_word_is(struct span word, const char *text);
/* the word is digits alone, of a number below 2^32 */
bool line_number(struct span word, uint32_t *value);
/* the whole rest of the line, without blanks around it */
struct span line_rest(const struct line *l);
char *line_copy(struct arena *a, struct span word);

#endif
