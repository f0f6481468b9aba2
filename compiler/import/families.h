#ifndef LLMC_IMPORT_FAMILIES_H
#define LLMC_IMPORT_FAMILIES_H

#include "compiler/import/describe.h"
#include "compiler/import/fields.h"

/* A model of Hugging Face's `config.json` by its model_type.  Errors go to the fields' diagnostics; false where the
 * type is not known. */
bool family_read(struct fields *f, const char *type, struct described *m);
/* all types, with commas between them */
const char *family_names(struct arena *a);

#endif
