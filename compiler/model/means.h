#ifndef LLMC_MEANS_H
#define LLMC_MEANS_H

/* What a decision and its job need of the software stack that will run them, by the rows of target.def; and whether
 * the target that the plan block names has it.  A job without a target (struct wishes) may have everything. */

#include "compiler/model/decision.h"
#include "compiler/target/target.h"

/* words of the row `order`: axes of one rank are in any */
enum means_order { MEANS_TP_CP_DP_PP = 1, MEANS_TP_CP_PP_DP = 2, MEANS_ANOTHER_ORDER = 4 };
enum means_order means_order(const struct decision *d);
/* the words of a row that the job's target has, as bits */
uint32_t means_of(const struct job *job, enum target_row row);
/* the bit of the word that the plan block chooses of a setting, 0: none */
uint32_t means_setting(const struct job *job, enum target_row row);
/* the same, or where it chooses none that which is usual in the target */
uint32_t means_in_force(const struct job *job, enum target_row row);
/* changes the numbers of the target's profile as the job's settings do */
void means_set(const struct job *job, struct profile *p);
/* Does the job's target have that word of a row, beside whatever the job itself has (rows from `offload` on)? */
bool means_offer(const struct job *job, enum target_row row, uint32_t bit);
/* what it lacks then, "context ring with precision fp32", and the row that excludes it, else TARGET_ROWS; NULL: nothing
 */
const char *means_refused(struct arena *a, const struct job *job, enum target_row row, uint32_t bit,
                          enum target_row *with);
/* Does the job's target have a word of a row never beside that word of another row? */
bool means_exclude(const struct job *job, enum target_row row, uint32_t bit, enum target_row other, uint32_t with);
/* Are all words that the decision needs among them, and none beside one that excludes it?  false, with
 * "megatron-core has no schedule zb_v" in *why, if not. */
bool means_allow(struct arena *a, const struct job *job, const struct decision *d, const char **why);
/* What the decision and its job need and a target has not, as "schedule zb_v"; at most `most`.  Returns how many. */
uint32_t means_lacking(struct arena *a, const struct target *t, const struct job *job, const struct decision *d,
                       const char **lacks, uint32_t most);
/* Are all statements of the job that leave no choice among what the target has?  false after errors at their places. */
bool means_check(struct arena *a, struct diag *d, const struct job *job);

#endif
