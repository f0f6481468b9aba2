/* Expanding calls: the queues are merged by seq, and every instruction is its segment's, with the buffers of
 * the frame, the ring slots of the call and the waits of the pattern.  The arrays have exactly the sizes that
 * read_calls() of program_decode.c added up.  Contradictions between a file's parts leave a program that
 * program_decode() refuses, as it is not what the file says. */

#include "runtime/program_decode.h"
#include "runtime/program_share.h"

#include <string.h>

static void next_waiting(const struct decoder *d, struct queue_state *s, uint32_t last)
{
    s->next_waiting = NONE;
    if (s->waiting == d->patterns[d->calls[s->call].pattern].nwaiting)
        return;
    s->next_waiting = last + (uint32_t)read_number(&s->pattern);
    s->waiting++;
}

static void start_call(const struct decoder *d, struct queue_state *s)
{
    s->insn = 0;
    s->waiting = 0;
    if (s->call == s->calls_end)
        return;
    s->pattern = d->section[SECTION_WAITS];
    s->pattern.at = d->patterns[d->calls[s->call].pattern].first;
    next_waiting(d, s, 0);
}

static void next_seq(struct queue_state *s)
{
    s->next_seq = s->last_seq + read_number(&s->seq);
    s->last_seq = s->next_seq + 1;
}

/* readers at the start of every queue's part of the seq section */
static void start_queues(struct decoder *d)
{
    struct reader *r = &d->section[SECTION_SEQ];
    for (uint32_t q = 0; q < NQUEUES; q++) {
        struct queue_state *s = &d->queue[q];
        s->seq = *r;
        for (uint64_t n = s->left; n && r->at < r->end; r->at++) /* the last byte of a number is below 128 */
            n -= *r->at < 128;
        start_call(d, s);
        next_seq(s);
    }
}

/* as read_patterns() has read them */
static void expand_waits(struct program *p, struct insn *in, struct queue_state *s)
{
    in->nwaits = (uint8_t)read_number(&s->pattern);
    for (uint32_t k = 0; k < in->nwaits; k++) {
        uint8_t q = (uint8_t)read_number(&s->pattern);
        s->position[q] += (uint32_t)read_signed(&s->pattern);
        p->waits[in->wait + k].queue = q;
        p->waits[in->wait + k].position = s->position[q];
    }
}

static void expand_operands(const struct decoder *d, const struct call *c, const struct insn *from, struct insn *in)
{
    const struct isa_info *info = isa_info(in->op);
    const struct frame *f = &d->frames[c->frame];
    for (uint32_t k = 0; k < info->noperands; k++) {
        struct operand *o = &d->p->operands[in->operand + k];
        *o = d->template->operands[from->operand + k];
        if (o->buffer == NONE)
            continue;
        const struct symbol *s = &d->symbols[f->symbol + o->buffer];
        o->buffer = s->buffer;
        o->offset = s->offset;
        if (s->class != NONE)
            o->offset += d->p->buffers[s->buffer].stride * d->slots[c->slot + s->class];
    }
}

/* the next instruction of a queue, as instruction i */
static void expand_insn(struct decoder *d, uint32_t q, uint32_t i, struct insn *at)
{
    struct queue_state *s = &d->queue[q];
    const struct call *c = &d->calls[s->call];
    const struct segment *g = &d->segments[d->frames[c->frame].segment];
    const struct insn *from = &d->template->insns[g->insn + s->insn];
    const struct isa_info *info = isa_info(from->op);
    struct insn *in = &d->p->insns[i];
    *in = *from;
    in->queue = (uint8_t)q;
    in->operand = at->operand;
    in->attr = at->attr;
    in->wait = at->wait;
    in->seq = (uint32_t)s->next_seq;
    in->microbatch = c->microbatch;
    in->layer = c->layer;
    expand_operands(d, c, from, in);
    if (info->nattrs)
        memcpy(d->p->attrs + in->attr, d->template->attrs + from->attr, info->nattrs * sizeof *d->p->attrs);
    if (s->next_waiting == s->insn) {
        expand_waits(d->p, in, s);
        next_waiting(d, s, s->insn);
    }
    at->operand += info->noperands;
    at->attr += info->nattrs;
    at->wait += in->nwaits;
    if (++s->insn == g->ninsns) {
        s->call++;
        start_call(d, s);
    }
    s->left--;
    next_seq(s);
}

void program_expand(struct decoder *d)
{
    struct program *p = d->p;
    struct insn at = {0};
    p->insns = program_alloc(NULL, p->ninsns, sizeof *p->insns);
    p->operands = program_alloc(NULL, p->noperands, sizeof *p->operands);
    p->attrs = program_alloc(NULL, p->nattrs, sizeof *p->attrs);
    p->waits = program_alloc(NULL, p->nwaits, sizeof *p->waits);
    start_queues(d);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        uint32_t best = NQUEUES;
        for (uint32_t q = 0; q < NQUEUES; q++)
            if (d->queue[q].left && (best == NQUEUES || d->queue[q].next_seq < d->queue[best].next_seq))
                best = q;
        expand_insn(d, best, i, &at);
    }
}
