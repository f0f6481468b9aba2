#ifndef LLMC_SENTENCE_H
#define LLMC_SENTENCE_H

/* Words put behind each other into room that the caller has; what does not fit is cut off.  Nothing is allocated. */

#include <stddef.h>
#include <stdint.h>

struct sentence {
    char *out;
    size_t size, n; /* bytes in all, with a 0 at the end; so far */
};
void say(struct sentence *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "rank 3 on gpu007"; host: its name, NULL on one machine */
void say_rank_of(struct sentence *s, uint32_t rank, const char *host);

#endif
