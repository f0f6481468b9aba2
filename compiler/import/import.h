#ifndef LLMC_IMPORT_H
#define LLMC_IMPORT_H

/* Models from other programs' files. */

#include "compiler/support/diag.h"

/* Text of the model language for the model of a Hugging Face `config.json`, or NULL after errors: what the language
 * cannot say is refused by the name of its field, unless `left_out` (names, with commas; NULL) has it.  name: what the
 * model is called, or NULL. */
char *import_huggingface(struct arena *a, struct diag *d, const struct source *source, const char *name,
                         const char *left_out);
/* Bytes of all weights by "model.safetensors.index.json" beside the file, or 0 where there is none; and how many
 * parameters it says they are, or 0. */
void import_index(struct arena *a, struct diag *d, const char *config, uint64_t *bytes, uint64_t *parameters);

#endif
