/* Programs as text.
 *
 *   llmc program 1
 *   role 0 of 2
 *   evaluation no
 *   job sequence=512 batch=64 ...
 *   arena 1048576
 *   slot 0 tp coord tp most 3
 *   ring 0 forward depth 4
 *   buffer 0 x step bf16 bytes 1572864 ring 0 stride 393216 offset 0
 *   buffer 1 y step bf16 bytes 4096 ring 0 stride 1024 offset 1572864 1574912 1573888 1579008
 *   bucket 0 dense elements 1024 tensors 2 decay count 1
 *   tensor 0 lm_head.weight shape 50257 384 box 128 384 at 0 corner 0 0 row + tp#0*128 normal 0.02
 *   412 compute MATMUL_NT c=%qkv#3[512x384]bf16 a=%x#0~2+64[512x384/768]bf16 <tp:33 ; F s0 mb3 L2 line 17
 *
 * A ring whose slots do not follow one another has the offset of each.
 * An instruction is: seq, queue, name, operands that are present, attributes, waits, tags.  An operand is
 * %buffer#index ~ring slot + byte offset + slot#index*stride [rows x cols / ld] dtype, without the parts that
 * are 0 or follow from others; `+=` marks accumulation, all other marks follow from the table.  After a name
 * comes its index: the index counts, the name is for people, both must agree.  Blank lines and lines from '#'
 * are skipped.  Reals are written with as many digits as it takes to read back the same number.  Printing
 * must survive unchecked programs: messages about their faults use it. */

#include "runtime/program.h"
#include "runtime/program_words.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NAME(s) (int)strnlen((s), sizeof(s)), (s)

const char *program_word(const char *const *words, size_t n, size_t i)
{
    return i < n ? words[i] : "?";
}

static void print_real(double v, FILE *out)
{
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    fputs(text, out);
}

static void print_slot(const struct program *p, uint32_t slot, FILE *out)
{
    if (slot < p->nslots)
        fprintf(out, "%.*s#%" PRIu32, NAME(p->slots[slot].name), slot);
    else
        fprintf(out, "?#%" PRIu32, slot);
}

static void print_operand(const struct program *p, const struct operand *o, FILE *out)
{
    uint64_t offset = o->offset;
    if (o->buffer < p->nbuffers) {
        const struct buffer *b = &p->buffers[o->buffer];
        fprintf(out, "%%%.*s#%" PRIu32, NAME(b->name), o->buffer);
        if (b->ring != NONE && b->stride && offset >= b->stride) {
            fprintf(out, "~%" PRIu64, offset / b->stride);
            offset %= b->stride;
        }
    } else {
        fprintf(out, "%%?#%" PRIu32, o->buffer);
    }
    if (offset)
        fprintf(out, "+%" PRIu64, offset);
    if (o->slot != UINT16_MAX) {
        fputc('+', out);
        print_slot(p, o->slot, out);
        fprintf(out, "*%" PRIu64, o->slot_stride);
    }
    fprintf(out, "[%" PRIu32 "x%" PRIu32, o->rows, o->cols);
    if (o->ld != o->cols)
        fprintf(out, "/%" PRIu32, o->ld);
    fprintf(out, "]%s", isa_dtype_name((enum dtype)o->dtype));
}

static void print_attr(const struct program *p, const struct isa_attr *row, const struct attr *a, FILE *out)
{
    if (row->optional && !a->u.i && (row->kind != ATTR_BIND || a->slot == NONE))
        return;
    fprintf(out, " %s=", row->name);
    switch (row->kind) {
    case ATTR_INT:
        fprintf(out, "%" PRId64, a->u.i);
        break;
    case ATTR_REAL:
        print_real(a->u.f, out);
        break;
    case ATTR_BIND:
        fprintf(out, "%" PRId64, a->u.i);
        if (a->slot != NONE) {
            fputc('+', out);
            print_slot(p, a->slot, out);
            fprintf(out, "*%" PRId64, a->stride);
        }
        break;
    case ATTR_PEER:
    case ATTR_GROUP:
        fputc('@', out);
        print_slot(p, a->slot, out);
        break;
    }
}

static void print_tags(const struct insn *in, FILE *out)
{
    if (!in->action && in->stage == UINT16_MAX && in->microbatch == NONE && in->layer == NONE && !in->line)
        return;
    fputs(" ;", out);
    if (in->action)
        fprintf(out, " %c", in->action);
    if (in->stage != UINT16_MAX)
        fprintf(out, " s%u", in->stage);
    if (in->microbatch != NONE)
        fprintf(out, " mb%" PRIu32, in->microbatch);
    if (in->layer != NONE)
        fprintf(out, " L%" PRIu32, in->layer);
    if (in->line)
        fprintf(out, " line %" PRIu32, in->line);
}

void program_print_insn(const struct program *p, uint32_t i, FILE *out)
{
    const struct insn *in = &p->insns[i];
    const struct isa_info *info = isa_info(in->op);
    fprintf(out, "%" PRIu32 " %s ", in->seq, isa_queue_name((enum queue)in->queue));
    if (!info) {
        fprintf(out, "opcode %u", in->op);
        return;
    }
    fputs(info->name, out);
    for (uint32_t k = 0; k < info->noperands && (uint64_t)in->operand + k < p->noperands; k++) {
        const struct operand *o = &p->operands[in->operand + k];
        if (o->buffer == NONE)
            continue;
        fprintf(out, " %s%s", info->operand[k].name, o->mark == MARK_ADD ? "+=" : "=");
        print_operand(p, o, out);
    }
    for (uint32_t k = 0; k < info->nattrs && (uint64_t)in->attr + k < p->nattrs; k++)
        print_attr(p, &info->attr[k], &p->attrs[in->attr + k], out);
    for (uint32_t k = 0; k < in->nwaits && (uint64_t)in->wait + k < p->nwaits; k++) {
        const struct wait *w = &p->waits[in->wait + k];
        fprintf(out, " <%s:%" PRIu32, isa_queue_name((enum queue)w->queue), w->position);
    }
    print_tags(in, out);
}

static void print_axes(uint32_t mask, FILE *out)
{
    const char *between = "";
    for (uint32_t a = 0; a < NDIGITS; a++)
        if (mask >> a & 1) {
            fprintf(out, "%s%s", between, program_digit_words[a]);
            between = "+";
        }
    if (mask & GROUP_TIE) {
        fprintf(out, "%stie", between);
        between = "+";
    }
    if (!*between)
        fputs("none", out);
}

static void print_slots(const struct program *p, FILE *out)
{
    for (uint32_t i = 0; i < p->nslots; i++) {
        const struct slot *s = &p->slots[i];
        fprintf(out, "slot %" PRIu32 " %.*s %s ", i, NAME(s->name),
                program_word(program_slot_words, NSLOT_KINDS, s->kind));
        switch (s->kind) {
        case SLOT_COORD:
        case SLOT_FIRST:
        case SLOT_GROUP:
            print_axes(s->arg, out);
            break;
        case SLOT_BEHIND:
            print_axes(SLOT_BEHIND_MASK(s->arg), out);
            fprintf(out, " %" PRIu32, SLOT_BEHIND_DISTANCE(s->arg));
            break;
        case SLOT_PEER:
            fprintf(out, "%" PRIu32, s->arg);
            break;
        }
        fprintf(out, " most %" PRId64 "\n", s->most);
    }
}

static void print_buffers(const struct program *p, FILE *out)
{
    for (uint32_t i = 0; i < p->nrings; i++)
        fprintf(out, "ring %" PRIu32 " %.*s depth %" PRIu32 "\n", i, NAME(p->rings[i].name), p->rings[i].depth);
    for (uint32_t i = 0; i < p->nbuffers; i++) {
        const struct buffer *b = &p->buffers[i];
        fprintf(out, "buffer %" PRIu32 " %.*s %s %s%s bytes %" PRIu64, i, NAME(b->name),
                program_word(program_buffer_words, NBUFFER_KINDS, b->kind), isa_dtype_name(b->dtype),
                b->host ? " host" : "", b->bytes);
        if (b->ring != NONE)
            fprintf(out, " ring %" PRIu32, b->ring);
        if (b->stride != b->bytes)
            fprintf(out, " stride %" PRIu64, b->stride);
        fprintf(out, " offset %" PRIu64, b->offset);
        for (uint32_t k = 1;
             b->scattered && b->ring < p->nrings && k < p->rings[b->ring].depth && b->place + k < p->nplaces; k++)
            fprintf(out, " %" PRIu64, p->places[b->place + k]);
        if (b->bucket != NONE)
            fprintf(out, " bucket %" PRIu32, b->bucket);
        if (b->shard_slot != NONE) {
            fputs(" shard ", out);
            print_slot(p, b->shard_slot, out);
        }
        fputc('\n', out);
    }
}

static void print_corner(const struct program *p, const char *word, uint32_t slot, uint64_t stride, FILE *out)
{
    if (slot == NONE)
        return;
    fprintf(out, " %s + ", word);
    print_slot(p, slot, out);
    fprintf(out, "*%" PRIu64, stride);
}

static void print_buckets(const struct program *p, FILE *out)
{
    for (uint32_t i = 0; i < p->nbuckets; i++) {
        const struct bucket *b = &p->buckets[i];
        fprintf(out, "bucket %" PRIu32 " %.*s elements %" PRIu64 " tensors %" PRIu32 "%s", i, NAME(b->name),
                b->elements, b->ntensors, b->decay ? " decay" : "");
        if (b->count_slot != NONE) {
            fputs(" count ", out);
            print_slot(p, b->count_slot, out);
        }
        fputc('\n', out);
    }
    for (uint32_t i = 0; i < p->ntensors; i++) {
        const struct tensor *t = &p->tensors[i];
        fprintf(out, "tensor %" PRIu32 " %.*s", i, NAME(t->name));
        if (t->family) {
            fprintf(out, " family %" PRIu32 " from %" PRIu32 " boxes %" PRIu32, t->family, t->member, t->boxes);
            print_corner(p, "member", t->member_slot, t->member_stride, out);
        }
        fputs(" shape", out);
        if (t->ndim != 1)
            fprintf(out, " %" PRIu64, t->shape[0]);
        fprintf(out, " %" PRIu64 " box %" PRIu32 " %" PRIu32 " at %" PRIu64 " corner %" PRIu64 " %" PRIu64, t->shape[1],
                t->rows, t->cols, t->at, t->row, t->col);
        print_corner(p, "row", t->row_slot, t->row_stride, out);
        print_corner(p, "col", t->col_slot, t->col_stride, out);
        fprintf(out, "%s %s ", t->transposed ? " transposed" : "",
                program_word(program_init_words, NINIT_KINDS, t->init));
        print_real(t->std, out);
        fputc('\n', out);
    }
}

static void print_job(const struct job_info *job, FILE *out)
{
    fputs("job", out);
    for (size_t i = 0; i < NJOB_FIELDS; i++) {
        const char *at = (const char *)job + program_job_fields[i].offset;
        fprintf(out, " %s=", program_job_fields[i].name);
        switch (program_job_fields[i].kind) {
        case JOB_U64:
            fprintf(out, "%" PRIu64, *(const uint64_t *)(const void *)at);
            break;
        case JOB_U32:
            fprintf(out, "%" PRIu32, *(const uint32_t *)(const void *)at);
            break;
        case JOB_REAL:
            print_real(*(const double *)(const void *)at, out);
            break;
        }
    }
    fputc('\n', out);
}

void program_print(const struct program *p, FILE *out)
{
    fprintf(out, "llmc program %d\nrole %" PRIu32 " of %" PRIu32 "\nevaluation %s\n", PROGRAM_TEXT_VERSION, p->role,
            p->nroles, p->evaluation ? "yes" : "no");
    print_job(&p->job, out);
    fprintf(out, "arena %" PRIu64 "\n", p->arena_bytes);
    print_slots(p, out);
    print_buffers(p, out);
    print_buckets(p, out);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        program_print_insn(p, i, out);
        fputc('\n', out);
    }
}
