/* Property 5, defined: everything that is read was written before in this step, or is persistent state.
 *
 * One pass in program order over intervals of defined bytes.  Program order is enough: where it is not
 * happens-before, the write and the read race, and property 4 says so.  Writing one of two buffers that share
 * bytes undefines the other, so data that another buffer has overwritten counts as not written. */

#include "compiler/verify/store.h"

struct defined {
    struct arena *arena;
    const struct plan *plan;
    const struct program *program;
    struct verdict *verdict;
    struct site site;
    struct store *store;
};

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
    const struct isa_info *info = isa_info((enum op)p->insns[i].op);
    for (uint32_t k = 0; k < info->noperands; k++) {
        const struct operand *o = prove_operand(p, i, k);
        if (o->buffer == NONE || o->mark == MARK_WRITE)
            continue;
        uint64_t missing = store_missing(c->store, o);
        if (!missing)
            continue;
        uint32_t writer = store_writer(c->store, o);
        c->site.insn = i;
        prove_report(c->arena, c->plan, c->verdict, c->site,
                     "it reads %s, of which %llu bytes were not written in this step%s%s",
                     info->operand[k].name, (unsigned long long)missing,
                     writer == NONE ? "" : "; the rest is by ",
                     writer == NONE ? "" : prove_insn_text(c->arena, p, writer));
    }
    for (uint32_t k = 0; k < info->noperands; k++) {
        const struct operand *o = prove_operand(p, i, k);
        if (o->buffer != NONE && o->mark != MARK_READ)
            store_define(c->store, o, i);
    }
}

void verify_defined(struct arena *a, const struct plan *p, struct verdict *v)
{
    for (int kind = 0; kind < NPROGRAM_KINDS; kind++)
        for (uint32_t role = 0; role < p->nroles; role++) {
            struct defined c = {
                a, p, prove_program(p, role, kind), v, {5, role, NONE, kind == PROGRAM_EVAL, NONE}, NULL};
            if (!c.program)
                continue;
            struct arena *scratch = arena_new();
            c.store = store_new(scratch, c.program, &p->mesh);
            define_state(&c);
            for (uint32_t i = 0; i < c.program->ninsns && prove_count(v, 5) < 20; i++)
                check_insn(&c, i);
            arena_free(scratch);
        }
}
