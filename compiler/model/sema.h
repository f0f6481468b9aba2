#ifndef LLMC_SEMA_H
#define LLMC_SEMA_H

/* From the tree to the checked job.  `--set KEY=VALUE` overrides are statements of the plan or train block,
 * parsed like the file's own and reported with the source name "--set". */

#include "compiler/model/ast.h"
#include "compiler/model/model.h"
#include "compiler/target/target.h"

/* Reads, parses and checks; NULL where the diagnostics hold an error.  sets: "key=value" texts as given to --set. */
struct job *job_read(struct arena *a, struct diag *d, const char *path, const char *const *sets, uint32_t nsets);
/* the same for a source in memory: for tests, and for DIR/model.llm */
struct job *job_parse(struct arena *a, struct diag *d, struct source *source, const char *const *sets, uint32_t nsets);

/* Tells that programs of this job will be emitted.  For the target llmrun, which places and runs them, from here on
 * memory is estimated as llmrun uses it, whatever stack the profile describes, and only time as that stack takes it.
 * For another target both are its own. */
void job_emits(struct arena *a, struct job *job);
/* the same job for another target, with that one's numbers; not yet emitted */
struct job *job_for_target(struct arena *a, const struct job *job, const char *target);
/* the same job with one setting of its target chosen, for comparisons of modelled figures */
struct job *job_with_setting(struct arena *a, const struct job *job, enum target_row row, uint32_t bit);

#endif
