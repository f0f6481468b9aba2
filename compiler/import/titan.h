#ifndef LLMC_IMPORT_TITAN_H
#define LLMC_IMPORT_TITAN_H

/* Configurations of torchtitan: TOML, as it had them until 2025, and the JSON that it writes since. */

#include "compiler/import/given.h"
#include "compiler/import/import.h"

#include <jansson.h>

/* is this JSON one of torchtitan's? */
bool titan_is(json_t *root);
/* Text of the model language, or NULL after errors.  root: the JSON, or NULL: the source is TOML.  name: the model's.
 */
char *titan_read(struct givens *g, json_t *root, const struct import_options *o, const char *name);

#endif
