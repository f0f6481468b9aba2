#ifndef LLMC_IMPORT_H
#define LLMC_IMPORT_H

/* Models, and how they are trained, from other programs' files. */

#include "compiler/support/diag.h"

struct import_options {
    const char *name;        /* what the model is called, or NULL */
    const char *left_out;    /* names, with commas, of what is left out; NULL */
    const char *const *sets; /* NAME=VALUE of what a file leaves open */
    size_t nsets;
};

/* Text of the model language for the model that a file of another stack describes, or NULL after errors: what the
 * language cannot say is refused by the name of its setting, unless it is left out.  The form is recognised from what
 * the file holds: a Hugging Face `config.json`, which says the model alone; arguments of Megatron-LM, in a shell script
 * or by themselves; a configuration of Megatron-Bridge or Megatron-LM in YAML; one of torchtitan in TOML or JSON.
 * These say how it is trained and planned, too. */
char *import_model(struct arena *a, struct diag *d, const struct source *source, const struct import_options *o);
/* Bytes of all weights by "model.safetensors.index.json" beside the file, or 0 where there is none; and how many
 * parameters it says they are, or 0. */
void import_index(struct arena *a, struct diag *d, const char *config, uint64_t *bytes, uint64_t *parameters);

#endif
