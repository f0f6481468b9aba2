#ifndef LLMC_ERROR_H
#define LLMC_ERROR_H

/* What went wrong, as one sentence for people, beside the enum status that says of which kind it is.  Whoever can fail
 * takes a struct error * and fills it in; whoever calls it gives one that says nothing yet, and prints it where nothing
 * is left to try.  Without memory a function may return STATUS_WORLD and say nothing. */

#include "runtime/status.h"

struct error {
    char text[2048]; /* "": nothing was said */
};

/* Says it in place of what was said before, cut where it is too long, and returns the status.  The old text may be
 * among the arguments: error_set(e, status, "%s: %s", path, e->text). */
enum status error_set(struct error *e, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
