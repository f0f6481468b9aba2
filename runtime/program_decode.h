#ifndef LLMC_PROGRAM_DECODE_H
#define LLMC_PROGRAM_DECODE_H

/* The contents of a program file, read but not yet expanded; private to program_decode.c and program_expand.c. */

#include "runtime/program_form.h"

struct segment {
    uint32_t insn, ninsns; /* in the template program */
    uint32_t noperands, nattrs, nsymbols;
};
struct symbol {
    uint32_t buffer;
    uint32_t class; /* number of its ring class within the frame; NONE: the offset is from the buffer's start */
    uint64_t offset;
};
struct frame {
    uint32_t segment, nclasses;
    size_t symbol; /* first */
};
struct pattern { /* waits of the instructions of a run */
    const uint8_t *first;
    uint32_t nwaiting, nwaits;
};
struct call {
    uint32_t frame, pattern, microbatch, layer;
    size_t slot; /* first of its ring slots */
};
struct queue_state {
    size_t call, calls_end;     /* current call, and one past the last */
    uint32_t insn;              /* next instruction of the current call */
    uint32_t waiting;           /* number of its pattern's waiting instructions that are done */
    struct reader pattern;      /* the rest of the call's pattern */
    uint32_t next_waiting;      /* instruction that waits next; NONE = no more */
    uint32_t position[NQUEUES]; /* position on each queue that was waited for last */
    struct reader seq;
    uint64_t left, next_seq, last_seq; /* instructions left; seq of the next one; seq of the last one + 1 */
};

struct decoder {
    struct program *p, *template;
    struct reader section[NSECTIONS];
    uint32_t nsegments, nframes, npatterns;
    struct segment *segments;
    struct frame *frames;
    struct symbol *symbols;
    size_t nsymbols, symbols_room;
    struct pattern *patterns;
    struct call *calls;
    size_t ncalls, calls_room;
    uint32_t *slots; /* ring slots of calls */
    size_t nslots, slots_room;
    struct queue_state queue[NQUEUES];
    uint32_t *class_frame, *class_number; /* per ring class: its number in the frame class_frame - 1 */
};

/* expands all instructions, in the order of seq */
void program_expand(struct decoder *d);

#endif
