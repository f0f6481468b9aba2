#ifndef LLMC_RENDEZVOUS_H
#define LLMC_RENDEZVOUS_H

/* Where ranks of several machines meet: rank 0 listens, all others connect by TCP, prove that they know the run's
 * secret, and compare the plan's hash before anything else.  Afterwards the connections carry barriers, small sums,
 * and the message of the first failure; training data never goes this way.  Every call has a deadline. */

#include "runtime/error.h"

#include <stddef.h>
#include <stdint.h>

enum { RENDEZVOUS_BLOB = 128, RENDEZVOUS_MOST = 4096 /* values in a sum */ };

struct rendezvous;
struct rendezvous_setup {
    const char *host; /* of rank 0 */
    uint16_t port;
    uint32_t rank, nranks;
    const char *plan_hash; /* 64 hexadecimal digits */
    const char *secret;    /* "": none, so anybody who reaches the port may join */
    uint64_t build;        /* build_id(): only equal builds of llmrun make a run */
    double timeout_s;      /* seconds for all ranks to join, and for each later meeting */
};
/* Returns when all ranks have come.  blob: rank 0's, RENDEZVOUS_BLOB bytes, is everybody's afterwards. */
enum status rendezvous_join(struct rendezvous **out, const struct rendezvous_setup *s, void *blob, struct error *error);
/* All ranks meet; values become sums over them; n may be 0 and must be equal on all ranks.  STATUS_WORLD and the
 * failure's message if some rank has failed or does not come. */
enum status rendezvous_sum(struct rendezvous *r, uint64_t *values, uint32_t n, struct error *error);
/* reports a failure to all others, who learn of it at their next meeting */
void rendezvous_fail(struct rendezvous *r, const char *words);
void rendezvous_close(struct rendezvous *r);

/* "host:port"; false: not of this form */
int rendezvous_address(const char *text, char *host, size_t size, uint16_t *port);

#endif
