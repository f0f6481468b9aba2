/* Cluster files: whatever the bytes are, reading ends with a cluster or with an error, and what was accepted
 * answers all questions and prints.  Seeds: topologies/. */

#include "compiler/topology/topo.h"
#include "tests/fuzz/common.h"

/* levels between some pairs; each must be symmetric and have a name and a bandwidth */
static void ask(struct arena *a, const struct topo *t)
{
    uint32_t *nodes;
    for (uint32_t type = 0; type < t->ntypes; type++) {
        topo_usable(a, t, type, &nodes);
        for (uint32_t level = 0; level <= t->ntiers; level++)
            require(topo_level_bytes_s(t, type, level) >= 0 && topo_level_latency_s(t, type, level) > 0);
        topo_level_of_nodes(t, type, 7);
    }
    for (uint32_t i = 0; i < t->nnodes; i += 1 + t->nnodes / 5) {
        uint32_t j = (i * 7 + 3) % t->nnodes, level = topo_level(t, i, j);
        require(level == topo_level(t, j, i) && level <= t->ntiers && *topo_level_name(t, level));
        require(topo_domain(t, i) < topo_ndomains(t));
        for (uint32_t k = 0; k < t->ntiers; k++)
            require(topo_group(t, k, i) < t->tiers[k].ngroups);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena *a = empty_arena();
    struct diag *d = diag_new(a);
    char *text = arena_strndup(a, (const char *)data, size);
    struct source s = {.name = "fuzz.xml", .text = text, .size = size};
    struct topo *t = topo_parse(a, d, &s, NULL);
    require(!t == (diag_errors(d) > 0));
    diag_print(d, nowhere(), false);
    if (t) {
        ask(a, t);
        topo_print(t, nowhere());
        topo_print_json(t, nowhere());
    }
    return 0;
}
