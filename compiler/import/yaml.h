#ifndef LLMC_IMPORT_YAML_H
#define LLMC_IMPORT_YAML_H

#include "compiler/import/given.h"

/* was libyaml there when this was built? */
extern const bool yaml_is_built;

enum yaml_form { YAML_TEXT, YAML_LIST, YAML_MAP };

/* What an alias names is the same value again, which may even hold itself: who walks bounds the depth and the visits.
 */
struct yaml_value {
    enum yaml_form form;
    const char *text; /* of a YAML_TEXT; "" of others */
    bool plain;       /* a YAML_TEXT without quotes, which in one line stands in the source as it is */
    uint32_t n;       /* values of a list or a map, and keys of a map */
    const struct yaml_value **keys, **values;
    struct span at; /* as far as its first line goes */
};

/* yaml.c: The first document of a file; a text of no length where there is none.  NULL after an error; without libyaml
 * always, and it says so. */
const struct yaml_value *yaml_tree(struct arena *a, struct diag *d, const struct source *s);
/* what a map has under a key, the last of several; NULL: nothing, or v is no map */
const struct yaml_value *yaml_member(const struct yaml_value *v, const char *key);

/* yaml_settings.c: Settings of a YAML file, by the last part of their names: "num_layers" of "model: {num_layers: 32}".
 * What stands in sections that say nothing about a step is read over.  false after an error. */
bool yaml_read(struct givens *g);

#endif
