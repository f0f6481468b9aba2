/* Property 5, defined: everything that is read was written before in this step, or is persistent state.
 *
 * One pass in program order over intervals of defined bytes.  Program order is enough: where it is not
 * happens-before, the write and the read race, and property 4 says so.  Writing one of two buffers that share
 * bytes undefines the other, so data that another buffer has overwritten counts as not written.
 *
 * Definedness only ends where a piece is taken away, which its cell counts.  So an operand that was found defined, or
 * was written, is looked at again only when its cell has lost something since; the same lists of operands come again
 * for every microbatch (program_share.h).  A program that fails is gone through once more without this, for its
 * message. */

#include "compiler/verify/store.h"

struct defined {
    struct arena *arena;
    const struct plan *plan;
    const struct program *program;
    struct verdict *verdict;
    struct site site;
    struct store *store;
    uint32_t *known; /* per operand: losses of its cell + 1 when it was last defined, 0 = not yet */
    bool careful, failed;
};

static bool is_known(const struct defined *c, uint32_t operand)
{
    return !c->careful && c->known[operand] == c->store->cells[c->store->place[operand].cell].losses + 1;
}

static void know(struct defined *c, uint32_t operand)
{
    c->known[operand] = c->store->cells[c->store->place[operand].cell].losses + 1;
}

/* persistent state is there from the start; the metrics are not */
static void define_state(struct defined *c)
{
    const struct program *p = c->program;
    for (uint32_t i = 0; i < p->nbuffers; i++) {
        const struct buffer *b = &p->buffers[i];
        uint64_t size = isa_dtype_bytes(b->dtype);
        if (b->kind == BUFFER_STEP || b->kind == BUFFER_METRICS)
            continue;
        struct operand all = {i, (uint8_t)b->dtype, MARK_WRITE, UINT16_MAX, 0, 0, 1, 1, 1};
        /* in two steps, so that counts fit 32 bits */
        uint64_t n = b->bytes / size, chunk = (uint64_t)1 << 30;
        for (uint64_t at = 0; at < n; at += chunk) {
            all.offset = at * size;
            all.cols = all.ld = (uint32_t)(n - at < chunk ? n - at : chunk);
            store_define(c->store, &all, NONE);
        }
    }
}

static void check_insn(struct defined *c, uint32_t i)
{
    const struct program *p = c->program;
    const struct isa_info *info = isa_info(p->insns[i].op);
    for (uint32_t k = 0; k < info->noperands; k++) {
        const struct operand *o = prove_operand(p, i, k);
        if (o->buffer == NONE || o->mark == MARK_WRITE || is_known(c, p->insns[i].operand + k))
            continue;
        uint64_t missing = store_missing(c->store, o);
        if (!missing) {
            know(c, p->insns[i].operand + k);
            continue;
        }
        c->failed = true;
        if (!c->careful)
            return;
        uint32_t writer = store_writer(c->store, o);
        c->site.insn = i;
        prove_report(c->arena, c->plan, c->verdict, c->site,
                     "it reads %s, of which %llu bytes were not written in this step%s%s", info->operand[k].name,
                     (unsigned long long)missing, writer == NONE ? "" : "; the rest is by ",
                     writer == NONE ? "" : prove_insn_text(c->arena, p, writer));
    }
    for (uint32_t k = 0; k < info->noperands; k++) {
        const struct operand *o = prove_operand(p, i, k);
        if (o->buffer == NONE || o->mark == MARK_READ)
            continue;
        if (is_known(c, p->insns[i].operand + k)) {
            store_drop_near(c->store, &c->store->place[p->insns[i].operand + k]);
            continue;
        }
        store_define(c->store, o, i);
        know(c, p->insns[i].operand + k);
    }
}

/* false: something is not defined */
static bool define_program(struct defined *c)
{
    struct arena *scratch = arena_new();
    c->store = store_new(scratch, c->program, &c->plan->mesh);
    c->known = ARENA_ARRAY(scratch, uint32_t, c->program->noperands + 1u);
    define_state(c);
    for (uint32_t i = 0; i < c->program->ninsns && prove_count(c->verdict, 5) < 20 && (c->careful || !c->failed); i++)
        check_insn(c, i);
    arena_free(scratch);
    return !c->failed;
}

void verify_defined(struct arena *a, const struct plan *p, struct verdict *v)
{
    for (int kind = 0; kind < NPROGRAM_KINDS; kind++)
        for (uint32_t role = 0; role < p->nroles; role++) {
            struct defined c = {.arena = a,
                                .plan = p,
                                .program = prove_program(p, role, kind),
                                .verdict = v,
                                .site = {5, role, NONE, kind == PROGRAM_EVAL, NONE}};
            if (!c.program || define_program(&c))
                continue;
            c.careful = true;
            define_program(&c);
        }
}
