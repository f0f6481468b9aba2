#ifndef LLMC_LOWER_EMIT_H
#define LLMC_LOWER_EMIT_H

/* EMIT(l, GEGLU_I, .dgate = a, .dup = b, .dy = dy, ...) appends an instruction: the row GEGLU_I of isa.def with
 * these operands and attributes.
 *
 * A name that the row does not have does not compile.  The access marks are the row's; where it allows both writing
 * and accumulating, the operand must say which (mat_write, mat_add, mat_by).  Leaving out anything required fails an
 * assertion; an optional operand that is left out, or is mat_none(), is absent, and an optional attribute that is
 * left out is 0.  Arguments are evaluated from left to right, so buffers and slots are numbered in the order of the
 * text. */

#include "compiler/lower/lower.h"

#include <math.h>

struct lower;

/* a matrix in a buffer; instance: the microbatch that owns the slot, for a ring buffer; else NONE */
struct mat {
    uint32_t buffer, instance;
    uint64_t at; /* offset in the buffer, bytes */
    uint32_t rows, cols, ld;
    enum dtype dtype;
    uint32_t slot; /* at += value of this slot * slot_stride; NONE: no slot */
    uint64_t slot_stride;
};
/* an operand that an instruction writes or accumulates into */
struct target {
    struct mat mat;
    enum mark mark;
};
/* a number that may differ between ranks: base + value of the slot * stride */
struct bind {
    int64_t base;
    uint32_t slot; /* NONE: the number is the base */
    int64_t stride;
};

static inline struct mat mat_none(void)
{
    return (struct mat){.buffer = NONE};
}
static inline struct target mat_by(struct mat m, enum mark mark)
{
    return (struct target){m, mark};
}
static inline struct target mat_write(struct mat m)
{
    return mat_by(m, MARK_WRITE);
}
static inline struct target mat_add(struct mat m)
{
    return mat_by(m, MARK_ADD);
}
static inline struct bind bind_at(int64_t base)
{
    return (struct bind){base, NONE, 0};
}
static inline struct bind bind_to(int64_t base, uint32_t slot, int64_t stride)
{
    return (struct bind){base, slot, slot == NONE ? 0 : stride};
}

/* For every instruction: the struct of its operands and attributes; that struct with nothing given (emit_none_NAME);
 * and the function that appends it (emit_NAME). */
#define R(n, d, r, c) struct mat n;
#define RO(n, d, r, c) struct mat n;
#define W(n, d, r, c) struct mat n;
#define WO(n, d, r, c) struct mat n;
#define WA(n, d, r, c) struct target n;
#define WAO(n, d, r, c) struct target n;
#define RW(n, d, r, c) struct mat n;
#define RWO(n, d, r, c) struct mat n;
#define INT(n) int64_t n;
#define INTO(n) int64_t n;
#define REAL(n) double n;
#define REALO(n) double n;
#define BIND(n) struct bind n;
#define BINDO(n) struct bind n;
#define PEER(n) uint32_t n;
#define GROUP(n) uint32_t n;
#define WHOLE(x, y)
#define MOST(x, y)
#define BELOW(x, y)
#define INSN(name, queue, unit, operands, attributes, meaning)                                                         \
    struct emit_##name {                                                                                               \
        operands attributes                                                                                            \
    };                                                                                                                 \
    extern const struct emit_##name emit_none_##name;                                                                  \
    void emit_##name(struct lower *l, const struct emit_##name *e);
#include "runtime/isa.def"

#define EMIT(l, op, ...)                                                                                               \
    do {                                                                                                               \
        struct emit_##op emit_ = emit_none_##op;                                                                       \
        EMIT_EACH(__VA_ARGS__);                                                                                        \
        emit_##op((l), &emit_);                                                                                        \
    } while (0)
/* `.name = value, ...` become assignments to emit_, one after the other, since initializers are evaluated in no
 * defined order */
#define EMIT_1(x) emit_ x
#define EMIT_2(x, ...) emit_ x, EMIT_1(__VA_ARGS__)
#define EMIT_3(x, ...) emit_ x, EMIT_2(__VA_ARGS__)
#define EMIT_4(x, ...) emit_ x, EMIT_3(__VA_ARGS__)
#define EMIT_5(x, ...) emit_ x, EMIT_4(__VA_ARGS__)
#define EMIT_6(x, ...) emit_ x, EMIT_5(__VA_ARGS__)
#define EMIT_7(x, ...) emit_ x, EMIT_6(__VA_ARGS__)
#define EMIT_8(x, ...) emit_ x, EMIT_7(__VA_ARGS__)
#define EMIT_9(x, ...) emit_ x, EMIT_8(__VA_ARGS__)
#define EMIT_10(x, ...) emit_ x, EMIT_9(__VA_ARGS__)
#define EMIT_11(x, ...) emit_ x, EMIT_10(__VA_ARGS__)
#define EMIT_12(x, ...) emit_ x, EMIT_11(__VA_ARGS__)
#define EMIT_13(x, ...) emit_ x, EMIT_12(__VA_ARGS__)
#define EMIT_14(x, ...) emit_ x, EMIT_13(__VA_ARGS__)
#define EMIT_15(x, ...) emit_ x, EMIT_14(__VA_ARGS__)
#define EMIT_16(x, ...) emit_ x, EMIT_15(__VA_ARGS__)
#define EMIT_17(x, ...) emit_ x, EMIT_16(__VA_ARGS__)
#define EMIT_18(x, ...) emit_ x, EMIT_17(__VA_ARGS__)
#define EMIT_19(x, ...) emit_ x, EMIT_18(__VA_ARGS__)
#define EMIT_20(x, ...) emit_ x, EMIT_19(__VA_ARGS__)
#define EMIT_21(x, ...) emit_ x, EMIT_20(__VA_ARGS__)
#define EMIT_22(x, ...) emit_ x, EMIT_21(__VA_ARGS__)
#define EMIT_23(x, ...) emit_ x, EMIT_22(__VA_ARGS__)
#define EMIT_24(x, ...) emit_ x, EMIT_23(__VA_ARGS__)
#define EMIT_25(x, ...) emit_ x, EMIT_24(__VA_ARGS__)
#define EMIT_26(x, ...) emit_ x, EMIT_25(__VA_ARGS__)
#define EMIT_PICK(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, a21, a22, \
                  a23, a24, a25, a26, macro, ...)                                                                      \
    macro
#define EMIT_EACH(...)                                                                                                 \
    EMIT_PICK(__VA_ARGS__, EMIT_26, EMIT_25, EMIT_24, EMIT_23, EMIT_22, EMIT_21, EMIT_20, EMIT_19, EMIT_18, EMIT_17,   \
              EMIT_16, EMIT_15, EMIT_14, EMIT_13, EMIT_12, EMIT_11, EMIT_10, EMIT_9, EMIT_8, EMIT_7, EMIT_6, EMIT_5,   \
              EMIT_4, EMIT_3, EMIT_2, EMIT_1, 0)                                                                       \
    (__VA_ARGS__)

#endif
