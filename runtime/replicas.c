/* Parts by their hashes.  Parts of different ranks are the same if the same boxes of tensors lie at the same places of
 * a buffer of the same kind; a rank that differs from most of those that hold a part is to blame. */

#include "runtime/replicas.h"
#include "runtime/hash.h"
#include "runtime/weights_private.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* what a rank tells of a part: which it is, and a hash of its bytes */
struct replica {
    uint64_t part, bytes, rank;
};
enum { WORDS = sizeof(struct replica) / sizeof(uint64_t) };

uint64_t replicas_words(const struct program *const *programs, const struct ranks *ranks)
{
    uint64_t n = 0;
    for (uint32_t r = 0; r < ranks->nranks; r++) {
        const struct program *p = programs[ranks->ranks[r].role];
        for (uint32_t i = 0; i < p->ninsns; i++)
            n += weights_is_optimizer(&p->insns[i]);
    }
    return 1 + WORDS * NSTATES * n;
}

/* Hash of what a piece is: its state, its place in the bucket, and the boxes that lie in the bucket. */
static uint64_t part_of(const struct weights_place *w, const struct weights_piece *piece, enum state state)
{
    const struct bucket *bucket = &w->p->buckets[piece->bucket];
    const uint64_t of[] = {state, piece->first, piece->ld, piece->values.dtype, piece->values.rows, piece->values.cols};
    uint64_t part = hash64(of, sizeof of, 0);
    for (uint32_t k = bucket->tensor; k < bucket->tensor + bucket->ntensors; k++) {
        const struct tensor *t = &w->p->tensors[k];
        const uint64_t box[] = {t->row + weights_slot(w, t->row_slot) * t->row_stride,
                                t->col + weights_slot(w, t->col_slot) * t->col_stride,
                                t->member + weights_slot(w, t->member_slot) * t->member_stride,
                                t->at,
                                t->rows,
                                t->cols,
                                t->boxes};
        part = hash64(t->name, strlen(t->name), hash64(box, sizeof box, part));
    }
    return part;
}

static uint64_t bytes_of(const struct view *v)
{
    size_t size = isa_dtype_bytes(v->dtype);
    uint64_t hash = 0;
    for (uint32_t row = 0; row < v->rows; row++)
        hash = hash64((const uint8_t *)v->data + (size_t)row * v->ld * size, v->cols * size, hash);
    return hash;
}

/* Writes the rank's own pieces to the words that all share; used: how many there are by then. */
static enum status tell(struct replica *all, _Atomic uint64_t *used, const struct weights_place *w)
{
    for (int state = 0; state < NSTATES; state++) {
        struct weights_piece *pieces;
        uint32_t n;
        enum status st = weights_pieces(w, (enum state)state, true, &pieces, &n);
        for (uint32_t i = 0; st == STATUS_OK && i < n; i++)
            all[atomic_fetch_add(used, 1)] = (struct replica){part_of(w, &pieces[i], (enum state)state),
                                                              bytes_of(&pieces[i].values), w->rank};
        free(pieces);
        TRY(st);
    }
    return STATUS_OK;
}

static int by_part(const void *a, const void *b)
{
    const struct replica *x = a, *y = b;
    return x->part != y->part     ? (x->part > y->part) - (x->part < y->part)
           : x->bytes != y->bytes ? (x->bytes > y->bytes) - (x->bytes < y->bytes)
                                  : (x->rank > y->rank) - (x->rank < y->rank);
}

/* how many of the first `n` have the first one's bytes */
static uint64_t run_of(const struct replica *all, uint64_t n)
{
    uint64_t k = 1;
    while (k < n && all[k].bytes == all[0].bytes)
        k++;
    return k;
}

/* the ranks that hold one part, sorted by its bytes */
static enum status judge(const struct replica *all, uint64_t n, uint64_t step, struct error *error)
{
    const struct replica *odd = all, *like = all; /* of those of whom there are fewest, and most */
    uint64_t fewest = n + 1, most = 0;
    for (uint64_t k = 0, length; k < n; k += length) {
        length = run_of(all + k, n - k);
        like = length > most ? all + k : like;
        most = length > most ? length : most;
        odd = length <= fewest ? all + k : odd;
        fewest = length < fewest ? length : fewest;
    }
    if (most == n)
        return STATUS_OK;
    uint64_t low = odd->rank < like->rank ? odd->rank : like->rank, high = odd->rank + like->rank - low;
    if (fewest < most)
        return error_set(
            error, STATUS_WORLD,
            "after step %llu rank %llu holds other weights or moments than the %llu ranks that hold the same "
            "part: its memory or a transfer to it has failed unseen",
            (unsigned long long)step, (unsigned long long)odd->rank, (unsigned long long)most);
    return error_set(
        error, STATUS_WORLD,
        "after step %llu ranks %llu and %llu hold the same part of the weights or moments, but not the same "
        "bits: the memory of one or a transfer to it has failed unseen",
        (unsigned long long)step, (unsigned long long)low, (unsigned long long)high);
}

static enum status compare(const struct replica *told, uint64_t n, uint64_t step, struct error *error)
{
    struct replica *all = malloc((n + 1) * sizeof *all);
    enum status st = all ? STATUS_OK : STATUS_WORLD;
    if (all) {
        memcpy(all, told, n * sizeof *all);
        qsort(all, n, sizeof *all, by_part);
    }
    for (uint64_t k = 0, length; st == STATUS_OK && k < n; k += length) {
        for (length = 1; k + length < n && all[k + length].part == all[k].part;)
            length++;
        st = judge(all + k, length, step, error);
    }
    free(all);
    return st;
}

enum status replicas_check(struct world *w, const struct weights_place *place, uint64_t base, uint64_t step,
                           struct error *error)
{
    uint64_t *words = (uint64_t *)(void *)w->coverage + base;
    _Atomic uint64_t *used = (_Atomic uint64_t *)(void *)words;
    struct replica *all = (struct replica *)(void *)(words + 1);
    if (w->rank == 0)
        atomic_store(used, 0);
    TRY(world_barrier(w));
    TRY(tell(all, used, place));
    TRY(world_barrier(w));
    enum status st = compare(all, atomic_load(used), step, error), met = world_barrier(w);
    return st == STATUS_OK ? met : st;
}
