#ifndef LLMC_TRANSPORT_WAY_H
#define LLMC_TRANSPORT_WAY_H

/* Private to the transports: the table that each of them is, and what they have in common about operands. */

#include "runtime/transport.h"

struct transport_way {
    enum status (*open)(struct transport **t, struct world *w, const struct channel *channels, uint32_t nchannels);
    void (*close)(struct transport *t);
    enum meeting_state (*post)(struct transport *t, const struct meeting *m);
    enum meeting_state (*poll)(struct transport *t, const struct meeting *m);
    int64_t (*latest)(struct transport *t, const struct meeting *m);
    uint32_t (*last)(struct transport *t, const struct meeting *m, int64_t *came_ns);
};
struct transport { /* the first member of each */
    const struct transport_way *way;
    struct world *world;
};
extern const struct transport_way transport_shm, transport_mpi;

/* an operand, addressed by logical element */
struct side {
    uint8_t *data;
    uint32_t cols, ld, bytes; /* bytes: of an element */
};
uint8_t *side_at(const struct side *s, uint64_t element);
/* n elements, from `element` on, side by side? */
bool side_is_flat(const struct side *s, uint64_t element, uint64_t n);
/* n elements of `from`, from e on, to those of `to` from f on; nothing where they are the same */
void side_copy(const struct side *to, uint64_t f, const struct side *from, uint64_t e, uint64_t n);

/* What is independent in a meeting: lots, and elements of each.  Of a reduce-scatter a lot is what one member receives,
 * of a gathering or a shift what one gives, of an all-to-all what one gives to one. */
struct lots {
    uint64_t n, elements;
};
struct lots transport_lots(enum op op, uint32_t x_rows, uint32_t cols, uint32_t nmembers);
/* Does one side's size follow from the other's?  Programs were checked; a wrong size here would overwrite something. */
bool transport_fits(enum op op, uint32_t x_rows, uint32_t y_rows, uint32_t argument, uint32_t nmembers);

#endif
