#ifndef LLMC_TESTS_FAKE_NCCL_H
#define LLMC_TESTS_FAKE_NCCL_H

/* A NCCL for processes of one machine over shared memory, on top of fake_cuda.h, that knows the rules and keeps the first
 * breach in words: communicators are made by all members in one order and polled before they are used; the same operations
 * in the same order, of equal counts and types, on every member; memory registered; groups closed; nothing after an abort;
 * everything destroyed.  A device runs communications one after the other in the order of their launches, as hardware may:
 * orders that differ between ranks hang here as they would there. */

#include "tests/fake/fake_cuda.h"

struct fake_nccl_setup {
    uint64_t seed;       /* of delays; 0 = none */
    uint32_t fail_rank;  /* of this world's rank ... */
    uint64_t fail_call;  /* ... this operation becomes an asynchronous error; 0 = none */
    uint64_t hang_call;  /* ... this one never ends */
    uint64_t refuse_call; /* ... this one is refused at once */
};
/* before ranks fork; NULL = out of memory */
const struct nccl_functions *fake_nccl_open(const struct fake_nccl_setup *s, uint32_t nranks);
/* what any process left behind or broke; "" = nothing */
void fake_nccl_complaints(char *out, size_t size);
void fake_nccl_close(void);

#endif
