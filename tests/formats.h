#ifndef LLMC_TESTS_FORMATS_H
#define LLMC_TESTS_FORMATS_H

/* Messages as the source writes them: literals and the formats of conversions.  For tests that want a case
 * for each. */

#include "compiler/support/arena.h"

#include <stdbool.h>

/* The text of a whole source file; fails the test without it. */
char *formats_read(struct arena *a, const char *path);
/* The literals that stand one behind the other from a quotation mark on, as one text; the words of inttypes.h
 * among them as conversions.  *end: what follows. */
char *formats_literal(struct arena *a, const char *at, const char **end);
/* Hands out the literals among the arguments of each `call` in a text ("fault(", or "return \"" for what is
 * returned), until take() says that it has enough of this one. */
typedef bool formats_take(void *context, const char *literal);
void formats_of_calls(struct arena *a, const char *text, const char *call, formats_take *take, void *context);
/* Do the words of a format, conversions left out, stand in a message in this order?  *words: it has any */
bool formats_fit(const char *format, const char *message, bool *words);

#endif
