/* The memory-bound kernels on a GPU: are they right, and how fast.
 *
 *   kernels check [ROW]     the table of tests/kernels/cuda_cases.c against kernels/cpu, then fused calls against the same
 *                           instructions one by one; exit 1 where something differs
 *   kernels bench [ROW]     achieved bytes/s, alone and fused, and their share of a copy's, as one JSON object a line
 *
 * Bytes are those that must move: what is read and not made before by the same call, and what is written, gathered rows
 * only where they are gathered.  Shapes are of a Llama-3 8B-like layer, larger than a GPU's cache.  Each time is the median
 * of 20 calls, by events.  Compiled without nvcc it runs on the emulation, with shapes 512 times smaller: times then say nothing. */

#include "kernels/cuda/fused.h"
#include "tests/gpu/device.cuh"

extern "C" {
#include "tests/kernels/cuda_cases.h"
}

#include <algorithm>
#include <stdio.h>
#include <string.h>
#include <time.h>

namespace {

const unsigned MOST_OPS = 4, CALLS = 20;

const unsigned SMALLER = EMULATED ? 512 : 1;

/* operand `to` of instruction i is operand `from` of instruction 0 or 1 */
struct link {
    unsigned i, to, source, from;
};
struct bench {
    unsigned n; /* instructions, fused where more than one */
    struct cuda_shape shape[MOST_OPS];
    uint32_t absent; /* optional operands of the first that are left out */
    enum dtype g;    /* of operands that may be fp32 or bf16 by themselves, of several where none is C the first; the others are bf16 */
    struct link links[12];
    unsigned nlinks;
};

#define T {"t", 8192}
#define H {"h", 4096}
#define F {"h", 14336}
#define V {"v", 128256}
#define ROW(op_, ...) {1, {{op_, __VA_ARGS__}}, 0, DTYPE_BF16, {}, 0}
#define NONE {}
const struct bench benches[] = {
    ROW(OP_COPY, {{"t", 32768}, F}, NONE, 0, 0),
    ROW(OP_FILL, {T, F}, NONE, 0, 0),
    ROW(OP_ADD, {T, F}, NONE, 0, 0),
    ROW(OP_EMBED, {T, V, H}, NONE, 0, 128256),
    {1, {{OP_EMBED_W, {T, V, H}, NONE, 0, 128256}}, 0, DTYPE_F32, {}, 0},
    ROW(OP_RMSNORM, {T, H}, {{"eps", 1e-5}}, 0, 0),
    ROW(OP_RMSNORM_I, {T, H}, NONE, 0, 0),
    {1, {{OP_RMSNORM_W, {T, H}, NONE, 0, 0}}, 0, DTYPE_F32, {}, 0},
    ROW(OP_LAYERNORM, {{"t", 65536}, {"h", 768}}, {{"eps", 1e-5}}, 0, 0),
    ROW(OP_LAYERNORM_I, {{"t", 65536}, {"h", 768}}, NONE, 0, 0),
    {1, {{OP_LAYERNORM_W, {{"t", 65536}, {"h", 768}}, NONE, 0, 0}}, 0, DTYPE_F32, {}, 0},
    {1, {{OP_BIAS_W, {T, F}, NONE, 0, 0}}, 0, DTYPE_F32, {}, 0},
    ROW(OP_ROPE, {T, {"a", 4096}}, {{"head", 128}, {"dims", 128}, {"sequence", 8192}, {"theta", 5e5}}, 0, 0),
    ROW(OP_HEADNORM, {T, {"a", 4096}}, {{"heads", 32}, {"head", 128}, {"eps", 1e-6}}, 0, 0),
    ROW(OP_HEADNORM_I, {T}, {{"heads", 32}, {"head", 128}}, 0, 0),
    ROW(OP_SINK, {T}, {{"heads", 64}, {"head", 64}}, 0, 0),
    {1, {{OP_SINK_W, {T}, {{"heads", 64}, {"head", 64}}, 0, 0}}, 0, DTYPE_F32, {}, 0},
    ROW(OP_GELU, {T, F}, {{"tanh", 1}}, 0, 0),
    ROW(OP_GELU_I, {T, F}, {{"tanh", 1}}, 0, 0),
    ROW(OP_SWIGLU, {T, F}, NONE, 0, 0),
    ROW(OP_SWIGLU_I, {T, F}, NONE, 0, 0),
    ROW(OP_XENT_MAX, {T, V}, {{"vocab", 128256}}, 0, 0),
    ROW(OP_XENT_SUM, {T, V}, {{"vocab", 128256}}, 0, 128256),
    ROW(OP_XENT_I, {T, V}, {{"vocab", 128256}, {"scale", 1}}, 0, 128256),
    {1, {{OP_SQNORM, {T, F}, {{"count", 1}}, 0, 0}}, 0, DTYPE_F32, {}, 0},
    {1, {{OP_ADAMW, {T, F}, {{"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"decay", 0.1}}, 0, 0}}, 0, DTYPE_F32, {}, 0},
    ROW(OP_DISPATCH, {T, H, {"k", 2}, {"m", 16384}}, NONE, 0, 0),
    ROW(OP_QUANTIZE, {T, H, {"w", 1056}}, NONE, 0, 0),
    ROW(OP_DEQUANTIZE, {T, H, {"w", 1056}}, NONE, 0, 0),
    ROW(OP_COMBINE, {T, H, {"k", 2}, {"m", 16384}}, NONE, 0, 0),
    ROW(OP_COMBINE_W, {T, H, {"k", 2}, {"m", 16384}}, NONE, 0, 0),
    ROW(OP_ARRANGE, {T, {"k", 8}}, {{"experts", 256}, {"blocks", 1}, {"rows", 65536}, {"sequence", 8192}}, 0, 256),
    ROW(OP_ARRANGE_ONCE, {T, {"k", 8}}, {{"experts", 256}, {"blocks", 8}, {"rows", 8192}, {"sequence", 8192}, {"mean", 3690}}, 0, 256),
    ROW(OP_ROUTE, {T, {"e", 256}, {"k", 8}}, {{"sigmoid", 1}, {"groups", 8}, {"pick", 4}, {"normalize", 1}, {"scale", 1}, {"sequence", 8192}}, 0, 0),
    ROW(OP_CONCAT, {T, {"w", 8192}, H}, NONE, 0, 0),
    ROW(OP_COLUMNS_SPLIT, {T, {"w", 1024}}, {{"parts", 8}}, 0, 0),
    {2,
     {{OP_ADD, {T, H}, NONE, 0, 0}, {OP_RMSNORM, {T, H}, {{"eps", 1e-5}}, 0, 0}},
     1 << OPND(ADD, bias), DTYPE_BF16,
     {{1, OPND(RMSNORM, x), 0, OPND(ADD, y)}}, 1},
    {2,
     {{OP_RMSNORM_I, {T, H}, NONE, 0, 0}, {OP_RMSNORM_W, {T, H}, NONE, 0, 0}},
     0, DTYPE_F32,
     {{1, OPND(RMSNORM_W, dy), 0, OPND(RMSNORM_I, dy)}, {1, OPND(RMSNORM_W, x), 0, OPND(RMSNORM_I, x)},
      {1, OPND(RMSNORM_W, rstd), 0, OPND(RMSNORM_I, rstd)}}, 3},
    {3,
     {{OP_LAYERNORM_I, {{"t", 65536}, {"h", 768}}, NONE, 0, 0}, {OP_LAYERNORM_W, {{"t", 65536}, {"h", 768}}, NONE, 0, 0},
      {OP_BIAS_W, {{"t", 65536}, {"h", 768}}, NONE, 0, 0}},
     0, DTYPE_F32,
     {{1, OPND(LAYERNORM_W, dy), 0, OPND(LAYERNORM_I, dy)}, {1, OPND(LAYERNORM_W, x), 0, OPND(LAYERNORM_I, x)},
      {1, OPND(LAYERNORM_W, mean), 0, OPND(LAYERNORM_I, mean)}, {1, OPND(LAYERNORM_W, rstd), 0, OPND(LAYERNORM_I, rstd)},
      {2, OPND(BIAS_W, dy), 0, OPND(LAYERNORM_I, dx)}}, 5},
    {4,
     {{OP_XENT_MAX, {T, V}, {{"vocab", 128256}}, 0, 0}, {OP_XENT_SUM, {T, V}, {{"vocab", 128256}}, 0, 128256},
      {OP_XENT_LOSS, {T}, {{"scale", 1}, {"count", 1}}, 0, 0}, {OP_XENT_I, {T, V}, {{"vocab", 128256}, {"scale", 1}}, 0, 0}},
     0, DTYPE_BF16,
     {{1, OPND(XENT_SUM, logits), 0, OPND(XENT_MAX, logits)}, {1, OPND(XENT_SUM, max), 0, OPND(XENT_MAX, max)},
      {2, OPND(XENT_LOSS, sum), 1, OPND(XENT_SUM, sum)}, {3, OPND(XENT_I, dlogits), 0, OPND(XENT_MAX, logits)},
      {3, OPND(XENT_I, logits), 0, OPND(XENT_MAX, logits)}, {3, OPND(XENT_I, max), 0, OPND(XENT_MAX, max)},
      {3, OPND(XENT_I, sum), 1, OPND(XENT_SUM, sum)}, {3, OPND(XENT_I, targets), 1, OPND(XENT_SUM, targets)}}, 8},
};
#undef T
#undef H
#undef F
#undef V
#undef ROW

size_t view_bytes(const struct view *v)
{
    return (size_t)v->rows * v->cols * isa_dtype_bytes(v->dtype);
}

/* random numbers in (0, 1], or ids: below high, or each number once where high is 0 */
void fill(const struct view *v, int32_t high)
{
    const size_t most = 1 << 16;
    size_t n = (size_t)v->rows * v->cols, size = isa_dtype_bytes(v->dtype);
    uint8_t *block = static_cast<uint8_t *>(malloc(most * size));
    struct view part = {block, v->dtype, false, 1, (uint32_t)most, (uint32_t)most};
    uint64_t random = 1;
    for (size_t at = 0; at < n; at += most) {
        for (uint32_t j = 0; (at == 0 || v->dtype == DTYPE_I32) && j < most; j++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            double x = ((double)(random >> 40) + 1) * 0x1p-24;
            cuda_cases_set(&part, 0, j, v->dtype != DTYPE_I32 ? x : high ? floor((1 - x) * high) : (double)(at + j));
        }
        device_store(static_cast<uint8_t *>(v->data) + at * size, block, std::min(most, n - at) * size);
    }
    free(block);
}

/* rows of an operand that are touched, where it is gathered or scattered */
size_t touched_rows(enum op op, unsigned operand, const struct kernel_args *k)
{
    size_t rows = k->operand[operand].rows;
    if (op == OP_EMBED && operand == OPND(EMBED, table))
        return std::min(rows, (size_t)k->operand[OPND(EMBED, y)].rows);
    if (op == OP_EMBED_W && operand == OPND(EMBED_W, dtable))
        return std::min(rows, (size_t)k->operand[OPND(EMBED_W, dy)].rows);
    return rows;
}

struct job {
    struct kernel_args args[MOST_OPS];
    const struct kernel_args *list[MOST_OPS];
    enum op ops[MOST_OPS];
    struct view made[64]; /* all memory */
    unsigned nmade;
    size_t bytes; /* that must move */
};

/* smaller: by what tokens are divided */
void make_job(struct job *j, const struct bench *b, unsigned smaller)
{
    for (unsigned i = 0; i < b->n; i++) {
        struct cuda_shape shape = b->shape[i];
        for (auto &d : shape.dims)
            if (d.name && (strcmp(d.name, "t") == 0 || strcmp(d.name, "m") == 0))
                d.value /= smaller;
        cuda_cases_views(&shape, i == 0 ? b->absent : 0, DTYPE_BF16, b->g, &j->args[i]);
        j->ops[i] = shape.op;
        j->list[i] = &j->args[i];
        const struct isa_info *info = isa_info(shape.op);
        for (unsigned o = 0; o < info->noperands; o++) {
            struct view *v = &j->args[i].operand[o];
            bool linked = false, reads = info->operand[o].mark == MARK_READ || info->operand[o].mark == MARK_UPDATE;
            for (unsigned l = 0; l < b->nlinks; l++)
                if (b->links[l].i == i && b->links[l].to == o) {
                    *v = j->args[b->links[l].source].operand[b->links[l].from];
                    linked = true;
                }
            if (!v->rows)
                continue;
            size_t row = view_bytes(v) / v->rows * touched_rows(shape.op, o, &j->args[i]);
            v->add = shape.op == OP_EMBED_W && o == 0;
            bool writes = info->operand[o].mark != MARK_READ;
            j->bytes += (reads || v->add) && !linked ? row : 0;
            j->bytes += writes ? row : 0;
            if (linked)
                continue;
            v->data = device_make(view_bytes(v));
            j->made[j->nmade++] = *v;
            fill(v, shape.high);
        }
    }
}

void drop_job(struct job *j)
{
    for (unsigned i = 0; i < j->nmade; i++)
        device_drop(j->made[i].data);
}

const char *call_job(const struct job *j, const struct bench *b, const struct cuda_call *c)
{
    return b->n == 1 ? cuda_kernel(j->ops[0], c) : cuda_fused(j->ops, j->list, b->n, c);
}

/* seconds of a call; below 0: it cannot be done */
double time_job(const struct job *j, const struct bench *b)
{
    struct device_watch w;
    double times[CALLS];
    size_t need = b->n == 1 ? cuda_workspace_bytes(j->ops[0], j->list[0], 90) : cuda_fused_workspace_bytes(j->ops, j->list, b->n);
    struct cuda_call c = {};
    c.args = j->list[0];
    c.workspace = device_make(need);
    c.workspace_bytes = need;
    const char *why = b->n > 1 && cuda_fuse(j->ops, j->list, b->n) != b->n ? "not fused" : call_job(j, b, &c);
    for (unsigned i = 0; i < (SMALLER > 1 ? 1 : CALLS) && !why; i++) {
        w.start();
        why = call_job(j, b, &c);
        times[i] = w.seconds();
    }
    const char *late = device_finish();
    device_drop(c.workspace);
    if (why || late) {
        fprintf(stderr, "%s: %s\n", isa_info(j->ops[0])->name, why ? why : late);
        return -1;
    }
    unsigned n = SMALLER > 1 ? 1 : CALLS;
    std::sort(times, times + n);
    return times[n / 2];
}

int run_bench(const char *filter)
{
    char name[256];
    double copy = 0;
    int status = 0;
    device_name(name, sizeof name);
    for (const struct bench &b : benches) {
        struct job j = {};
        if (copy > 0 && filter && !strstr(isa_info(b.shape[0].op)->name, filter))
            continue;
        make_job(&j, &b, SMALLER);
        double seconds = time_job(&j, &b), rate = (double)j.bytes / seconds;
        copy = copy > 0 ? copy : rate; /* the first is the copy */
        const struct view *v = &j.args[0].operand[0];
        if (seconds > 0)
            printf("{\"device\": \"%s\", \"kernel\": \"%s%s%s\", \"instructions\": %u, \"rows\": %u, \"cols\": %u, \"seconds\": %.3e, "
                   "\"bytes\": %zu, \"bytes_s\": %.4g, \"of_copy\": %.3f}\n",
                   name, isa_info(j.ops[0])->name, b.n > 1 ? "+" : "", b.n > 1 ? isa_info(j.ops[1])->name : "", b.n, v->rows, v->cols,
                   seconds, j.bytes, rate, rate / copy);
        fflush(stdout);
        status |= seconds < 0;
        drop_job(&j);
    }
    return status;
}

/* largest difference of what two jobs have in their i-th memory, over the largest number */
double difference(const struct job *a, const struct job *b, unsigned i)
{
    size_t bytes = view_bytes(&a->made[i]);
    struct view x = a->made[i], y = x;
    double most = 1e-30, worst = 0;
    x.data = malloc(bytes);
    y.data = malloc(bytes);
    device_fetch(x.data, a->made[i].data, bytes);
    device_fetch(y.data, b->made[i].data, bytes);
    for (uint32_t r = 0; r < x.rows; r++)
        for (uint32_t c = 0; c < x.cols; c++) {
            double one = cuda_cases_get(&x, r, c), other = cuda_cases_get(&y, r, c), apart = fabs(one - other);
            most = std::max(most, fabs(other));
            worst = apart <= 1e300 ? std::max(worst, apart) : 1e300; /* NaN too */
        }
    free(x.data);
    free(y.data);
    return worst / most;
}

/* the fused calls of the bench, of fewer rows, against their instructions one by one */
unsigned check_fused(const char *filter, unsigned *nruns)
{
    unsigned failed = 0;
    for (const struct bench &b : benches) {
        struct job apart = {}, fused = {};
        if (b.n == 1 || (filter && !strstr(isa_info(b.shape[0].op)->name, filter)))
            continue;
        make_job(&apart, &b, EMULATED ? SMALLER : 64);
        make_job(&fused, &b, EMULATED ? SMALLER : 64);
        struct cuda_call c = {};
        c.workspace_bytes = cuda_fused_workspace_bytes(fused.ops, fused.list, b.n);
        for (unsigned i = 0; i < b.n; i++)
            c.workspace_bytes = std::max(c.workspace_bytes, cuda_workspace_bytes(apart.ops[i], apart.list[i], 90));
        c.workspace = device_make(c.workspace_bytes);
        const char *why = cuda_fuse(fused.ops, fused.list, b.n) == b.n ? cuda_fused(fused.ops, fused.list, b.n, &c) : "not fused";
        for (unsigned i = 0; i < b.n && !why; i++) {
            c.args = apart.list[i];
            why = cuda_kernel(apart.ops[i], &c);
        }
        const char *late = device_finish();
        why = why ? why : late;
        double worst = 0;
        for (unsigned i = 0; i < fused.nmade && !why; i++)
            worst = std::max(worst, difference(&fused, &apart, i) / (fused.made[i].dtype == DTYPE_BF16 ? 8e-3 : 1e-4));
        if (why || worst > 1) {
            printf("WRONG: %s fused with what follows: %s, %.3g of the tolerance\n", isa_info(b.shape[0].op)->name, why ? why : "differs", worst);
            failed++;
        }
        ++*nruns;
        device_drop(c.workspace);
        drop_job(&apart);
        drop_job(&fused);
    }
    return failed;
}

const char *finish(int)
{
    return device_finish();
}

int run_check(const char *filter)
{
    const struct cuda_place place = {device_make, device_drop, device_store, device_fetch, cuda_kernel, finish};
    char name[256];
    unsigned nruns, failed = cuda_cases_check(&place, filter, &nruns);
    failed += check_fused(filter, &nruns);
    device_name(name, sizeof name);
    printf("{\"device\": \"%s\", \"runs\": %u, \"failed\": %u}\n", name, nruns, failed);
    return failed != 0;
}

} // namespace

int main(int argc, char **argv)
{
    const char *filter = argc > 2 ? argv[2] : nullptr;
    if (argc >= 2 && argc <= 3 && strcmp(argv[1], "check") == 0)
        return run_check(filter);
    if (argc >= 2 && argc <= 3 && strcmp(argv[1], "bench") == 0)
        return run_bench(filter);
    fprintf(stderr, "usage: kernels check|bench [ROW]\n");
    return 2;
}
