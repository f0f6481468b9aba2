#ifndef LLMC_IMPORT_TOML_H
#define LLMC_IMPORT_TOML_H

#include "compiler/import/given.h"

/* Settings of a TOML file by their whole names, "training.steps": tables, strings on one line, numbers, booleans and
 * arrays, of whose arrays each becomes one value with commas.  Whatever else TOML has is an error.  false after one. */
bool toml_read(struct givens *g);

#endif
