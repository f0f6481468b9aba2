#ifndef LLMC_TESTS_ALTER_H
#define LLMC_TESTS_ALTER_H

/* Changes of plans by hand, in the text that programs are printed as: what a broken compiler could have written. */

#include "compiler/llmc.h"

/* Operands name buffers without their numbers ("%grad.head[3x64]f32") where names are unique.
 * In `program`'s text ("t0": of role 0 for training, "e1": of role 1 for evaluation, "t", "e": of all roles,
 * "": all) the first line that holds all words of `line` has `from` replaced by `to`; with '*' in front of
 * the words, all lines that hold them and `from`.  to = NULL: the line goes, and of an instruction waits
 * follow the others; from = "": `to` comes behind the line; from = "swap": it changes places with the next
 * line of its queue. */
struct alteration {
    const char *program, *line, *from, *to;
};
#define MOST_ALTERATIONS 6

/* A plan of its own programs where the alterations changed them, and ranks of its own; else what the original
 * has.  NULL: an alteration found nothing, or the text is no program; *why says what.  Release with
 * altered_free(). */
struct plan *alter_plan(struct arena *a, const struct plan *p, const struct alteration x[MOST_ALTERATIONS],
                        const char **why);
void altered_free(struct plan *altered, const struct plan *p);

#endif
