/* Rank tables from hostile files, with header and hashes made to fit.  Whatever is accepted must have one
 * form, and its groups distinct members below the number of ranks.  New inputs start from a small valid
 * table. */

#include "tests/fuzz/common.h"
#include "tests/runtime/random_program.h"

#include "tests/runtime/random_program.c" /* fuzzers link no other test */

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);

/* checks against a program, for whatever ranks_check() says of it */
static void check_accepted(const struct ranks *r)
{
    struct error error;
    struct program *p = program_new(0, 1);
    const struct program *programs[] = {p, p, p, p};
    program_slot(p, "a", SLOT_COORD, 1u << AXIS_TP, 3);
    program_slot(p, "b", SLOT_PEER, 0, 7);
    program_slot(p, "c", SLOT_GROUP, 1, 2);
    for (uint32_t i = 0; i < r->ngroups; i++) {
        uint32_t n = group_size(&r->groups[i]), last = 0;
        for (uint32_t k = 0; k < n && k < 100; k++) {
            uint32_t rank = group_rank(&r->groups[i], k);
            require(rank < r->nranks && (!k || rank != last));
            last = rank;
        }
    }
    if (r->nroles <= 4)
        ranks_check(r, programs, &error);
    program_free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ranks *r;
    struct error error = {""};
    uint8_t *file = malloc(size + 1);
    require(file != NULL);
    if (size)
        memcpy(file, data, size);
    repair_file(file, size, 0);
    enum status s = ranks_decode(file, size, &r, &error);
    require((s == STATUS_OK) == (r != NULL) && (s == STATUS_OK || *error.text));
    if (s == STATUS_OK) {
        uint8_t *again;
        size_t again_size;
        require(ranks_encode(r, &again, &again_size) == STATUS_OK);
        require(size == again_size && !memcmp(file, again, size));
        free(again);
        check_accepted(r);
        ranks_free(r);
    }
    free(file);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    if (size > 64 && seed % 64)
        return LLVMFuzzerMutate(data, size, room);
    struct ranks *r = ranks_new(8, 2, 4, 24);
    uint8_t *bytes;
    size_t n;
    for (uint32_t i = 0; i < 4; i++)
        r->groups[i] = (struct group){2 * i, {2, 1, 1, 1}, {1, 0, 0, 0}};
    for (uint32_t i = 0; i < 8; i++) {
        r->ranks[i] = (struct rank_info){i / 4, i / 4, i % 4, 3 * i};
        r->values[3 * i] = i % 4;
        r->values[3 * i + 1] = i ^ 1;
        r->values[3 * i + 2] = i / 2;
    }
    require(ranks_encode(r, &bytes, &n) == STATUS_OK);
    if (n <= room) {
        memcpy(data, bytes, n);
        size = n;
    }
    free(bytes);
    ranks_free(r);
    return size;
}
