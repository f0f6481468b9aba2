#ifndef LLMC_TESTS_CASES_H
#define LLMC_TESTS_CASES_H

/* Files of cases: texts by what they change in a common one, with the very text that must come of each.
 *
 *     # comments, up to the first line that begins with ==
 *     == base NAME              its lines follow, as they are, without empty ones at the end
 *     == NAME from BASE         a case; without `from` its text begins empty.  Then:
 *     $ WORDS                   words for the test: options, arguments
 *     @ LINE                    go on behind the next such line of the text; blanks in front of a line do not count
 *     - LINE                    drop the next such line, and go on where it was
 *     + LINE                    add a line here; at the end, where no line was named before
 *     * N WORDS                 add words N times, without ending the line
 *     \ LINE                    add a line with bytes as \xHH, a backslash as \\, and \c at the end for no end of line
 *     > LINE                    what must come of it
 *
 * What must come of a case is the last of it; lines between cases may be empty. */

#include "compiler/support/arena.h"

#include <stdint.h>

struct text_case {
    const char *name, *text; /* text: size bytes, then a 0 */
    size_t size;
    const char *words[8];
    uint32_t nwords;
    const char *wanted;
};

/* the cases of a file in order; asserts that it is well formed */
uint32_t cases_read(struct arena *a, const char *path, struct text_case **out);
/* say() of every case must be what is wanted, to the byte; UPDATE=1 in the environment writes what it says into the file.  Returns
 * the number of cases. */
uint32_t cases_check(struct arena *a, const char *path, const char *(*say)(struct arena *a, const struct text_case *c));
/* the same of all files of a folder whose names begin with prefix and end with .cases */
uint32_t cases_check_folder(struct arena *a, const char *folder, const char *prefix,
                            const char *(*say)(struct arena *a, const struct text_case *c));

#endif
