/* Random valid programs, the same with every compiler: no two draws stand unsequenced.  A few bodies
 * (instructions with operands, attributes and tags) are made, then called again and again for further
 * microbatches and layers, with other ring slots and fresh waits, as a lowering would.  Shapes follow from
 * isa.def alone: every name in a row gets a value, values that relations bind are made to fit. */

#include "runtime/hash.h"
#include "tests/runtime/random_program.h"

#include <stdlib.h>
#include <assert.h>
#include <string.h>

const char small_program[] =
    "llmc program 1\n"
    "role 0 of 1\n"
    "evaluation no\n"
    "job sequence=8 batch=2 vocab=100 seed=1 steps_total=9 optimizer=0 lr_kind=2 lr=0.001 lr_min=0 beta1=0.9 "
    "beta2=0.95 lr_warmup=1 lr_decay=5 lr_stable=0 tokens_per_step=16\n"
    "arena 65536\n"
    "slot 0 tp coord tp most 3\n"
    "slot 1 count first cp+dp most 1\n"
    "slot 2 next peer 1 most 7\n"
    "slot 3 tpgroup group tp most 4\n"
    "ring 0 act depth 3\n"
    "buffer 0 x step f32 bytes 3072 ring 0 stride 1024 offset 0\n"
    "buffer 1 y step f32 bytes 4096 offset 4096\n"
    "buffer 2 w master f32 bytes 1024 offset 8192 bucket 0 shard tp#0\n"
    "buffer 3 block block f64 bytes 64 offset 16384\n"
    "buffer 4 metrics metrics f64 bytes 40 offset 16640\n"
    "bucket 0 dense elements 1024 tensors 2 decay count count#1\n"
    "tensor 0 a.weight shape 64 8 box 16 8 at 0 corner 0 0 row + tp#0*16 normal 0.02\n"
    "tensor 1 a.bias shape 8 box 1 8 at 128 corner 0 0 ones 0\n"
    "0 compute TOKENS tokens=%y#1+2048[8x1]i32 step=%block#3[1x8]f64 sample=0 sequence=8 first=0 shift=0\n"
    "1 compute MATMUL_NT c=%x#0~1[8x8]f32 a=%y#1[8x4/8]f32 b=%w#2[8x4]f32 <compute:0 ; F s0 mb1 L2 line 7\n"
    "2 tp ALL_REDUCE x=%x#0~1[8x8]f32 group=@tpgroup#3 max=0 <compute:1\n"
    "3 send SEND x=%x#0~1+256[8x8]f32 peer=@next#2 <tp:0\n"
    "4 recv RECV y=%y#1+1024+tp#0*256[8x8]f32 peer=@next#2\n"
    "5 dp ALL_GATHER y=%y#1[16x8]f32 x=%w#2[4x8]f32 group=@tpgroup#3\n"
    "6 compute XENT_LOSS loss+=%metrics#4+8[1x1]f64 sum=%y#1[8x2]f32 scale=0.0625 count=0+count#1*1 <recv:0 "
    "<dp:0\n"
    "7 compute ATTENTION o=%y#1[8x4]f32 lse=%y#1+1024[8x2]f32 q=%x#0[8x4]f32 k=%x#0+256[8x2]f32 "
    "v=%x#0+512[8x2]f32 "
    "heads=2 kv=1 head=2 sequence=4 scale=0.5 window=0 softcap=0\n";

#define BUFFER_BYTES 16384u
#define NBUFFERS 24u
#define DEPTH 5u

uint64_t random_next(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

struct maker {
    uint32_t length; /* instructions in the end */
    struct program *p;
    uint64_t state;
    uint32_t seq, count[NQUEUES];
};

/* 0..n-1 */
static uint32_t pick(struct maker *m, uint32_t n)
{
    return (uint32_t)(random_next(&m->state) % n);
}

struct shape_names {
    uint32_t sequence, t, u, head, kv, heads, a, s, group_n, parts, w,
        other[9]; /* h v m n k r e experts blocks */
};

static uint32_t name_value(const struct shape_names *x, const char *name, size_t n)
{
    const struct {
        const char *name;
        uint32_t value;
    } values[] = {{"t", x->t},
                  {"u", x->u},
                  {"w", x->w},
                  {"parts", x->parts},
                  {"kparts", x->parts},
                  {"by", 1},
                  {"rows", 2},
                  {"groups", 1},
                  {"pick", 1},
                  {"head", x->head},
                  {"kv", x->kv},
                  {"heads", x->heads},
                  {"a", x->a},
                  {"s", x->s},
                  {"1", 1},
                  {"2", 2},
                  {"4", 4},
                  {"8", 8},
                  {"group_n", x->group_n},
                  {"h", x->other[0]},
                  {"v", x->other[1]},
                  {"m", x->other[2]},
                  {"n", x->other[3]},
                  {"k", x->other[4]},
                  {"r", x->other[5]},
                  {"e", x->other[6]},
                  {"experts", x->other[7]},
                  {"blocks", x->other[8]},
                  {"sequence", x->sequence},
                  {"dims", x->head / 2 * 2}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (strlen(values[i].name) == n && !strncmp(values[i].name, name, n))
            return values[i].value;
    return 0;
}

static uint32_t dimension(const struct shape_names *x, const char *text)
{
    const char *star = strchr(text, '*');
    if (!star)
        return name_value(x, text, strlen(text));
    return name_value(x, text, (size_t)(star - text)) * name_value(x, star + 1, strlen(star + 1));
}

static enum dtype pick_dtype(struct maker *m, char class, enum dtype compute, enum dtype any)
{
    switch (class) {
    case 'C':
        return compute;
    case 'G':
        return pick(m, 2) ? pick(m, 2) ? DTYPE_BF16 : DTYPE_F16 : DTYPE_F32;
    case 'F':
        return DTYPE_F32;
    case 'I':
        return DTYPE_I32;
    case 'D':
        return DTYPE_F64;
    default:
        return any;
    }
}

static void fill_operand(struct maker *m, struct operand *o, uint32_t rows, uint32_t cols, enum dtype dtype)
{
    uint32_t size = isa_dtype_bytes(dtype);
    o->buffer = pick(m, NBUFFERS);
    const struct buffer *b = &m->p->buffers[o->buffer];
    o->dtype = (uint8_t)dtype;
    o->rows = rows;
    o->cols = cols;
    o->ld = cols + (pick(m, 3) ? 0 : pick(m, 4));
    uint64_t bytes = ((uint64_t)(rows - 1) * o->ld + cols) * size;
    if (!pick(m, 4)) { /* slots 0 and 1 are a coordinate and a first slot */
        o->slot = (uint16_t)pick(m, 2);
        o->slot_stride = 8u * pick(m, 9);
        bytes += o->slot_stride * (uint64_t)m->p->slots[o->slot].most;
    }
    uint64_t room = (b->ring == NONE ? b->bytes : b->stride) - bytes;
    o->offset = random_next(&m->state) % (room / 8 + 1) * 8;
    if (b->ring != NONE)
        o->offset += b->stride * pick(m, DEPTH);
}

static void fill_attr(struct maker *m, const struct isa_attr *t, struct attr *a, const struct shape_names *x)
{
    switch (t->kind) {
    case ATTR_INT:
        a->u.i = name_value(x, t->name, strlen(t->name));
        if (!a->u.i)
            a->u.i = !strcmp(t->name, "vocab") || !strcmp(t->name, "power")
                         ? 1 + pick(m, 2)
                         : pick(m, 2);
        break;
    case ATTR_REAL:
        a->u.f = (double)pick(m, 1000) / 7;
        break;
    case ATTR_BIND:
        a->u.i = pick(m, 1000) + 100;
        if (pick(m, 2)) {
            a->slot = pick(m, 2);
            a->stride = (int64_t)pick(m, 20) - 10;
        }
        break;
    case ATTR_PEER:
        a->slot = 2;
        break;
    case ATTR_GROUP:
        a->slot = 3;
        break;
    }
}

/* two in a training program, at places of their own */
static bool is_seam(const struct maker *m)
{
    return !m->p->evaluation && m->length > 2 && (m->p->ninsns == 1 || m->p->ninsns == 2);
}

static void add_insn(struct maker *m)
{
    enum op op = is_seam(m) ? OP_SEAM : (enum op)pick(m, NOPS - 1);
    op = is_seam(m) || op < OP_SEAM ? op : (enum op)(op + 1); /* all others are drawn */
    const struct isa_info *info = isa_info(op);
    uint32_t i = program_insn(m->p, op);
    struct insn *in = &m->p->insns[i];
    struct shape_names x = {.sequence = 1 + pick(m, 4)};
    enum dtype compute = pick(m, 2) ? DTYPE_F32 : pick(m, 2) ? DTYPE_BF16 : DTYPE_F16, any = (enum dtype)pick(m, NDTYPES);
    bool add = pick(m, 2);
    if (op == OP_ATTENTION_PART || op == OP_ATTENTION_PART_I)
        x.sequence = 2 * (1 + pick(m, 2));
    x.parts = 1 + pick(m, 3);
    x.w = 1 + pick(m, 5);
    x.u = x.sequence * (1 + pick(m, 3));
    x.head = 2 * (1 + pick(m, 3));
    x.kv = 1 + pick(m, 2);
    x.t = x.sequence * (1 + pick(m, 3));
    x.heads = x.kv * (1 + pick(m, 2));
    x.a = x.head * (1 + pick(m, 3));
    x.s = x.sequence + pick(m, 3);
    x.group_n = (uint32_t)m->p->slots[3].most;
    for (int k = 0; k < 9; k++)
        x.other[k] = 1 + pick(m, 9);
    x.other[8] = 1; /* blocks divide experts and rows */
    if (op == OP_ROUTE || op == OP_ROUTE_I)
        x.other[6] += x.other[4]; /* choices among experts */
    if (info->queue == QUEUE_ANY)
        in->queue = (uint8_t)(pick(m, 2) ? QUEUE_TP : pick(m, 2) ? QUEUE_DP : QUEUE_COMPUTE);
    for (uint32_t k = 0; k < info->noperands; k++) {
        const struct isa_operand *t = &info->operand[k];
        if (t->optional && pick(m, 2))
            continue;
        struct operand *o = &m->p->operands[in->operand + k];
        fill_operand(m, o, dimension(&x, t->rows), dimension(&x, t->cols),
                     pick_dtype(m, t->dtype, compute, any));
        o->mark = (uint8_t)(t->mark == MARK_ADD && !add ? MARK_WRITE : t->mark);
    }
    for (uint32_t k = 0; k < info->nattrs; k++)
        fill_attr(m, &info->attr[k], &m->p->attrs[in->attr + k], &x);
    in->line = pick(m, 3) ? 1 + pick(m, 40) : 0;
}

static void finish_insn(struct maker *m, uint32_t i)
{
    struct insn *in = &m->p->insns[i];
    in->seq = m->seq;
    m->seq += 1 + (pick(m, 4) ? 0 : pick(m, 300));
    in->wait = m->p->nwaits;
    in->nwaits = 0;
    while (!pick(m, 4) && m->p->insns[i].nwaits < 16) {
        enum queue q = (enum queue)pick(m, NQUEUES);
        if (m->count[q])
            program_wait(m->p, i, q, m->count[q] - 1 - pick(m, m->count[q] < 4 ? m->count[q] : 4));
    }
    m->count[m->p->insns[i].queue]++;
}

/* the same work again for another microbatch: copy of instruction `from` with ring slots `shift` further */
static void repeat_insn(struct maker *m, uint32_t from, uint32_t shift)
{
    struct program *p = m->p;
    uint32_t i = program_insn(p, p->insns[from].op);
    const struct insn *old = &p->insns[from];
    struct insn *in = &p->insns[i];
    const struct isa_info *info = isa_info(old->op);
    in->queue = old->queue;
    in->line = old->line;
    for (uint32_t k = 0; k < info->noperands; k++) {
        struct operand *o = &p->operands[in->operand + k];
        *o = p->operands[old->operand + k];
        if (o->buffer != NONE && p->buffers[o->buffer].ring != NONE) {
            uint64_t stride = p->buffers[o->buffer].stride;
            o->offset = (o->offset / stride + shift) % DEPTH * stride + o->offset % stride;
        }
    }
    if (info->nattrs)
        memcpy(p->attrs + in->attr, p->attrs + old->attr, info->nattrs * sizeof *p->attrs);
}

/* a ring's slots from the last to the first */
static void scatter(struct program *p, struct buffer *b)
{
    b->place = p->nplaces;
    for (uint32_t k = DEPTH; k-- > 0;)
        program_add_place(p, b->offset + k * b->stride);
    b->offset += (DEPTH - 1) * b->stride;
}

static void add_tables(struct maker *m)
{
    struct program *p = m->p;
    program_slot(p, "tp", SLOT_COORD, 1u << AXIS_TP, 3);
    program_slot(p, "first", SLOT_FIRST, 5, 1);
    program_slot(p, "next", SLOT_PEER, 1, 63);
    uint32_t axis = pick(m, NAXES), tie = pick(m, 3) ? 0 : GROUP_TIE;
    program_slot(p, "group", SLOT_GROUP, 1u << axis | tie, 2 + pick(m, 3));
    program_slot(p, "behind", SLOT_BEHIND, SLOT_BEHIND_ARG(1u << axis, 1 + pick(m, 3)), 3);
    program_ring(p, "forward", DEPTH);
    program_ring(p, "backward", DEPTH);
    for (uint32_t i = 0; i < NBUFFERS; i++) {
        struct buffer b = {.ring = pick(m, 3) ? NONE : pick(m, 2), .bucket = NONE, .shard_slot = NONE};
        snprintf(b.name, sizeof b.name, "b%u.x", i);
        b.dtype = (enum dtype)pick(m, NDTYPES);
        b.stride = BUFFER_BYTES;
        b.bytes = b.ring == NONE ? b.stride : DEPTH * b.stride;
        b.offset = p->arena_bytes;
        p->arena_bytes += b.bytes;
        b.scattered = b.ring != NONE && i % 2;
        if (b.scattered)
            scatter(p, &b);
        program_buffer(p, &b);
    }
    for (uint32_t i = 0; i < 3; i++) {
        struct bucket k = {
            .elements = 4096, .tensor = p->ntensors, .decay = i & 1, .count_slot = i == 1 ? 1 : NONE};
        struct buffer b = {.kind = BUFFER_MASTER, .ring = NONE, .bucket = i, .shard_slot = i ? 0 : NONE};
        snprintf(k.name, sizeof k.name, "bucket%u", i);
        snprintf(b.name, sizeof b.name, "master%u", i);
        for (uint64_t at = 0; at + 200 < k.elements && pick(m, 8); k.ntensors++) {
            struct tensor t = {
                .ndim = 1 + pick(m, 2), .shape = {1, 4096}, .row_slot = NONE, .col_slot = NONE, .at = at};
            snprintf(t.name, sizeof t.name, "layers.%u.w-%u", i, k.ntensors);
            t.rows = t.ndim == 2 ? 1 + pick(m, 10) : 1;
            t.cols = 1 + pick(m, 20);
            if (t.ndim == 2) {
                t.shape[0] = 100;
                t.transposed = pick(m, 2);
                t.row_slot = pick(m, 2) ? 0 : NONE;
                t.row_stride = t.row_slot == NONE ? 0 : t.rows;
                t.row = pick(m, 5);
            }
            t.init = (enum init_kind)pick(m, 3);
            t.std = 0.02;
            at += (uint64_t)t.rows * t.cols + pick(m, 3);
            program_tensor(p, &t);
        }
        program_bucket(p, &k);
        b.bytes = b.stride = 4 * k.elements / (i ? 4 : 1);
        b.offset = p->arena_bytes;
        p->arena_bytes += b.bytes;
        program_buffer(p, &b);
    }
}

static void add_code(struct maker *m, uint32_t n)
{
    const char actions[] = {0, 'F', 'B', 'I', 'W', 'O'};
    for (uint32_t microbatch = 0, layer = 0; m->p->ninsns < n; microbatch++, layer = (layer + 1) % 7) {
        uint32_t first = m->p->ninsns, left = n - first;
        uint32_t size = 1 + pick(m, 30), shift = pick(m, 2) ? microbatch % DEPTH : pick(m, DEPTH);
        bool again = first && pick(m, 8);
        uint32_t from = again ? pick(m, first < 100 ? first : 100) : 0;
        char action = actions[pick(m, 6)];
        for (uint32_t i = 0; i < size && i < left; i++) {
            if (again && from + i < first && !is_seam(m) && m->p->insns[from + i].op != OP_SEAM)
                repeat_insn(m, from + i, shift);
            else
                add_insn(m);
            struct insn *in = &m->p->insns[first + i];
            in->action = action;
            in->stage = action ? 3 : UINT16_MAX;
            in->microbatch = action == 'O' ? NONE : microbatch;
            in->layer = pick(m, 20) ? layer : NONE;
            finish_insn(m, first + i);
        }
    }
}

struct program *random_program(uint64_t seed, uint32_t n)
{
    struct maker m = {.p = program_new((uint32_t)(seed % 3), 3), .state = seed};
    struct job_info *job = &m.p->job;
    m.seq = pick(&m, 5);
    m.p->evaluation = pick(&m, 2);
    m.length = n;
    *job = (struct job_info){.sequence = 1 + pick(&m, 4096), .vocab = 50257, .seed = seed};
    job->batch = 1 + pick(&m, 64);
    job->lr = 1e-4 / (1 + pick(&m, 9));
    job->beta2 = 0.95;
    job->lr_kind = pick(&m, 4);
    job->tokens_per_step = (double)(job->sequence * job->batch);
    add_tables(&m);
    add_code(&m, n);
    return m.p;
}

#define WIDTH 64u
#define TOKENS_PER_MICROBATCH 128u

struct layers {
    struct program *p;
    uint32_t count[NQUEUES], seq;
    uint32_t bucket_buffer, gradient_buffer, depth;
};

/* a [tokens x width] view of a ring buffer, or of the weights of one layer */
static void set_view(struct layers *l, uint32_t insn, uint32_t operand, uint32_t buffer, uint64_t offset,
                     enum mark mark)
{
    const struct buffer *b = &l->p->buffers[buffer];
    bool weight = b->ring == NONE;
    l->p->operands[l->p->insns[insn].operand + operand] =
        (struct operand){.buffer = buffer,
                         .dtype = DTYPE_BF16,
                         .mark = (uint8_t)mark,
                         .slot = UINT16_MAX,
                         .offset = offset,
                         .rows = weight ? WIDTH : TOKENS_PER_MICROBATCH,
                         .cols = WIDTH,
                         .ld = WIDTH};
}

static uint32_t add_step(struct layers *l, enum op op, char action, uint32_t layer, uint32_t microbatch)
{
    uint32_t i = program_insn(l->p, op);
    struct insn *in = &l->p->insns[i];
    in->seq = l->seq += 17;
    in->action = action;
    in->stage = 1;
    in->layer = layer;
    in->microbatch = microbatch;
    in->line = 20 + l->count[in->queue] % 10;
    l->count[in->queue]++;
    return i;
}

/* forward of a layer: four products, the last reduced over tp; backward: eight, one reduction */
static void add_layer(struct layers *l, bool forward, uint32_t layer, uint32_t microbatch)
{
    uint64_t slot = microbatch % l->depth, bytes = TOKENS_PER_MICROBATCH * WIDTH * 2u;
    char action = forward ? 'F' : 'B';
    for (uint32_t k = 0; k < (forward ? 4u : 8u); k++) {
        bool gradient = !forward && k % 2;
        uint32_t i = add_step(l,
                              gradient  ? OP_MATMUL_TN
                              : forward ? OP_MATMUL_NT
                                        : OP_MATMUL_NN,
                              action, layer, microbatch);
        uint64_t weight = (layer * 4u + k / (forward ? 1 : 2)) * (uint64_t)(WIDTH * WIDTH * 2u);
        if (!k && layer)
            program_wait(l->p, i, QUEUE_TP, l->count[QUEUE_TP] - 1);
        set_view(l, i, 0, gradient ? l->gradient_buffer : 2 * layer + 1, gradient ? weight : slot * bytes,
                 gradient && microbatch ? MARK_ADD : MARK_WRITE);
        set_view(l, i, 1, 2 * layer, slot * bytes, MARK_READ);
        set_view(l, i, 2, gradient ? 2 * layer + 1 : l->bucket_buffer, gradient ? slot * bytes : weight,
                 MARK_READ);
    }
    uint32_t i = add_step(l, OP_ALL_REDUCE, action, layer, microbatch);
    l->p->attrs[l->p->insns[i].attr].slot = 0;
    program_wait(l->p, i, QUEUE_COMPUTE, l->count[QUEUE_COMPUTE] - 1);
    set_view(l, i, 0, 2 * layer + 1, slot * bytes, MARK_UPDATE);
}

struct program *layered_program(uint32_t layers, uint32_t microbatches)
{
    struct layers l = {.p = program_new(0, 1), .depth = 4};
    l.p->job = (struct job_info){.sequence = 128, .batch = microbatches, .vocab = 256};
    program_slot(l.p, "tp", SLOT_GROUP, 1, 8);
    program_ring(l.p, "stage", l.depth);
    for (uint32_t i = 0; i < 2 * layers + 2; i++) {
        bool ring = i < 2 * layers;
        struct buffer b = {.dtype = DTYPE_BF16, .ring = ring ? 0 : NONE, .bucket = NONE, .shard_slot = NONE};
        snprintf(b.name, sizeof b.name, ring ? "act.%u" : "weights.%u", i);
        b.stride = ring ? TOKENS_PER_MICROBATCH * WIDTH * 2 : layers * WIDTH * WIDTH * 8;
        b.bytes = ring ? l.depth * b.stride : b.stride;
        b.offset = l.p->arena_bytes;
        l.p->arena_bytes += b.bytes;
        program_buffer(l.p, &b);
    }
    l.bucket_buffer = 2 * layers;
    l.gradient_buffer = 2 * layers + 1;
    for (uint32_t m = 0; m < microbatches; m++) {
        for (uint32_t k = 0; k < layers; k++)
            add_layer(&l, true, k, m);
        for (uint32_t k = layers; k-- > 0;)
            add_layer(&l, false, k, m);
    }
    return l.p;
}

static void put_u64(uint8_t *to, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        to[i] = (uint8_t)(v >> 8 * i);
}

/* the layout of runtime/program_bytes.h, written down a second time */
void repair_file(uint8_t *file, size_t n, uint64_t fingerprint)
{
    if (n < 32)
        return;
    size_t sections = file[12], head = 32 + 16 * sections, at = head + 8;
    if (file[13] || file[14] || file[15] || n < at)
        return;
    put_u64(file + 16, n);
    put_u64(file + 24, fingerprint);
    for (size_t i = 0; i < sections; i++) {
        uint8_t *entry = file + 32 + 16 * i;
        uint64_t length = 0;
        for (int k = 8; k-- > 0;)
            length = length << 8 | entry[k];
        if (length > n - at || i + 1 == sections)
            length = n - at;
        put_u64(entry, length);
        put_u64(entry + 8, hash64(file + at, (size_t)length, i));
        at += (size_t)length;
    }
    put_u64(file + head, hash64(file, head, 0));
}
