#ifndef LLMC_EXPLORE_H
#define LLMC_EXPLORE_H

/* `llmc explore`: a page that needs nothing else, in which settings of a job move and their estimates follow.
 *
 * The page runs the compiler itself: what `estimate` needs of it, compiled to WebAssembly (module/), which the build
 * puts into the program.  It hands that the model's text, the cluster and the settings, and gets what `llmc estimate
 * --json` prints.  Only XML is not read in the page: the module gets the tree that topo_xml.c made of the cluster. */

#include "compiler/model/model.h"
#include "compiler/support/strbuf.h"
#include "compiler/topology/topo.h"
#include "compiler/topology/topo_xml.h"
#include "runtime/error.h"

struct explore_page {
    const char *model, *cluster; /* names of the files as the user wrote them */
    const struct job *job;
    const struct topo *topo;
    uint32_t nsets;
    const char *const *sets; /* settings to begin with, as given to --set */
};

/* false: this program was built where clang could not link for WebAssembly, so that there is nothing to run in a page
 */
bool explore_has_module(void);
/* Writes the page; requires a module. */
void explore_write(const struct explore_page *p, FILE *out);

/* --- shared by the files of this folder --- */

/* Appends an element tree, with all its places in the source, as the module's xml_parse() reads it. */
void explore_tree(const struct xml_element *root, struct strbuf *out);

#endif
