#ifndef LLMC_TESTS_TEXTS_H
#define LLMC_TESTS_TEXTS_H

/* Texts that tests compare. */

#include "compiler/support/diag.h"

/* all messages, as they are printed */
char *text_of_diag(struct arena *a, const struct diag *d, bool colour);
/* Asserts that a file holds this text; UPDATE=1 in the environment writes it. */
void text_is_golden(const char *text, const char *path);

#endif
