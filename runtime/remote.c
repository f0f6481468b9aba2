/* See remote.h.  What ranks share otherwise is this rank's alone: it has room for one arena, and the rendezvous carries barriers,
 * the weights' coverage and the first failure. */

#include "runtime/remote.h"
#include "runtime/rendezvous.h"

#include <stdlib.h>

enum status run_remote(struct run *r, const struct launch *l, const char *host, uint16_t port, char *error,
                              size_t error_size)
{
    const char *secret = getenv("LLMRUN_SECRET");
    const struct rendezvous_setup s = {host, port, l->rank, l->nranks, r->folder->hash, secret ? secret : "", 600};
    if (r->o.trace) {
        snprintf(error, error_size, "--trace takes ranks of one machine");
        return STATUS_USAGE;
    }
    for (uint32_t i = 0; i < r->folder->ranks->nranks; i++)
        r->arena_sizes[i] = i == l->rank ? r->arena_sizes[i] : 0;
    struct world_sizes sizes = run_sizes(r);
    TRY(world_open(&r->world, &sizes, NULL, l->rank, 60, error, error_size));
    if (l->rank == 0 && r->nccl.GetUniqueId((struct nccl_id *)(void *)r->world.transport)) {
        snprintf(error, error_size, "NCCL finds no network interface to meet on");
        return STATUS_WORLD;
    }
    TRY(rendezvous_join(&r->world.remote, &s, r->world.transport, error, error_size));
    enum status st = run_rank(r, l->rank);
    if (st != STATUS_OK)
        snprintf(error, error_size, "%s", r->world.control->message);
    rendezvous_close(r->world.remote);
    r->world.remote = NULL;
    return st;
}
