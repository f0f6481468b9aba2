#ifndef LLMC_IMPORT_YAML_H
#define LLMC_IMPORT_YAML_H

#include "compiler/import/given.h"

/* was libyaml there when this was built? */
extern const bool yaml_is_built;

/* Settings of a YAML file, by the last part of their names: "num_layers" of "model: {num_layers: 32}".  What stands in
 * sections that say nothing about a step is read over.  false after an error; without libyaml always, and it says so.
 */
bool yaml_read(struct givens *g);

#endif
