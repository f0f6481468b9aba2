#ifndef LLMC_TESTS_FOUND_H
#define LLMC_TESTS_FOUND_H

/* A search on a worked example: plans/MODEL/model.llm on topologies/CLUSTER.xml. */

#include "compiler/search/search.h"

struct found {
    struct arena *a; /* the caller's to free */
    struct diag *d;
    struct job *job;
    struct topo *topo;
    struct search_result *r;
};
struct found search_example(const char *model, const char *cluster, const char *const *sets, uint32_t nsets, uint32_t top,
                            bool emit_only);

#endif
