#ifndef LLMC_STOP_H
#define LLMC_STOP_H

/* SIGTERM and SIGINT ask a run that takes checkpoints for its end, once; the second time they end it at once, as they
 * do without checkpoints. */

#include <stdatomic.h>
#include <stdint.h>

/* Sets one or two words to 1 when one of them comes, here and in processes that are forked later.  A signal that was
 * ignored before stays so (a shell's background jobs ignore SIGINT). */
void stop_on_signals(_Atomic uint32_t *const *asked, uint32_t n);

#endif
