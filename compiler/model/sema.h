#ifndef LLMC_SEMA_H
#define LLMC_SEMA_H

/* From the tree to the checked job.  `--set KEY=VALUE` overrides are statements of the plan or train block,
 * parsed like the file's own and reported with the source name "--set". */

#include "compiler/model/ast.h"
#include "compiler/model/model.h"

/* Read, parse, check; NULL when the diagnostics hold an error.  sets: "key=value" texts as given. */
struct job *job_read(struct arena *a, struct diag *d, const char *path, const char *const *sets,
                     uint32_t nsets);
/* the same from memory, for tests and for DIR/model.llm */
struct job *job_parse(struct arena *a, struct diag *d, struct source *source, const char *const *sets,
                      uint32_t nsets);

/* Programs of this job are to be written, which llmrun places and plays: whatever stack its profile describes, memory is
 * llmrun's from here on, and time alone the profile's. */
void job_emits(struct arena *a, struct job *job);

#endif
