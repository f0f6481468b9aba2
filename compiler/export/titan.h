#ifndef LLMC_TITAN_H
#define LLMC_TITAN_H

/* The two halves of form torchtitan: the model (titan_model.c), and how it is trained and laid out (torchtitan.c). */

#include "compiler/export/export.h"

/* the module of torchtitan/models/ whose layers a model has */
enum titan_family { TITAN_LLAMA, TITAN_QWEN, TITAN_DEEPSEEK };
struct titan_names {
    const char *module, *model, *block, *parallelize, *adapter;
};
extern const struct titan_names titan_names[]; /* by enum titan_family */
enum titan_family titan_family(const struct model *m);

/* writes what the file imports for x->job's model */
void titan_imports(struct export *x);
/* writes model(), which makes its configuration, and refuses what of it there is no class for */
void titan_model(struct export *x);

#endif
