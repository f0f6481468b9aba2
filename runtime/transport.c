/* Which transport it is, and what they have in common. */

#include "runtime/transport_way.h"

#include <string.h>

enum status transport_open(struct transport **t, struct world *w, const struct channel *channels, uint32_t nchannels)
{
    return (w->mpi ? &transport_mpi : &transport_shm)->open(t, w, channels, nchannels);
}

void transport_close(struct transport *t)
{
    if (t)
        t->way->close(t);
}

enum meeting_state transport_post(struct transport *t, const struct meeting *m)
{
    return t->way->post(t, m);
}

enum meeting_state transport_poll(struct transport *t, const struct meeting *m)
{
    return t->way->poll(t, m);
}

int64_t transport_latest(struct transport *t, const struct meeting *m)
{
    return t->way->latest(t, m);
}

uint32_t transport_last(struct transport *t, const struct meeting *m, int64_t *came_ns)
{
    return t->way->last(t, m, came_ns);
}

uint8_t *side_at(const struct side *s, uint64_t e)
{
    return s->data + (e / s->cols * s->ld + e % s->cols) * s->bytes;
}

bool side_is_flat(const struct side *s, uint64_t e, uint64_t n)
{
    return s->ld == s->cols || e % s->cols + n <= s->cols;
}

/* elements from e on, at most n, that lie side by side in both */
static uint64_t run_length(const struct side *a, const struct side *b, uint64_t e, uint64_t f, uint64_t n)
{
    if (a->ld == a->cols && b->ld == b->cols)
        return n;
    uint64_t in_a = a->cols - e % a->cols, in_b = b->cols - f % b->cols, least = in_a < in_b ? in_a : in_b;
    return least < n ? least : n;
}

void side_copy(const struct side *to, uint64_t f, const struct side *from, uint64_t e, uint64_t n)
{
    for (uint64_t run; n; n -= run, e += run, f += run) {
        run = run_length(from, to, e, f, n);
        uint8_t *out = side_at(to, f), *in = side_at(from, e);
        if (out != in)
            memcpy(out, in, run * from->bytes);
    }
}

struct lots transport_lots(enum op op, uint32_t x_rows, uint32_t cols, uint32_t nmembers)
{
    uint64_t n = nmembers, size = (uint64_t)x_rows * cols;
    if (op == OP_REDUCE_SCATTER)
        return (struct lots){n, size / n};
    if (op == OP_ALL_TO_ALL)
        return (struct lots){n * n, size / n};
    return (struct lots){op == OP_ALL_GATHER || op == OP_SHIFT ? n : 1, size};
}

bool transport_fits(enum op op, uint32_t x_rows, uint32_t y_rows, uint32_t argument, uint32_t nmembers)
{
    if (op == OP_ALL_GATHER)
        return y_rows == (uint64_t)nmembers * x_rows;
    if (op == OP_REDUCE_SCATTER)
        return x_rows == (uint64_t)nmembers * y_rows;
    return x_rows == y_rows && (op != OP_ALL_TO_ALL || x_rows % nmembers == 0) &&
           ((op != OP_BROADCAST && op != OP_SHIFT) || argument < nmembers);
}
