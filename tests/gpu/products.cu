/* Products and attention on a GPU: are they right, and how fast.
 *
 *   products check [WHAT]    our own kernels, cuBLASLt and cuDNN against kernels/cpu; exit 1 where something differs
 *   products bench [WHAT]    achieved flop/s as one JSON object a line: products by the chosen algorithm of cuBLASLt and by our own
 *                            kernel; experts' products; attention by cuDNN and by our own kernels.  of_best: the share of the
 *                            speed of the best of all algorithms that cuBLASLt suggests, or of cuDNN's plan alone; 0 = unknown
 *
 * Operands are random, never zero.  Times are the median of 20 calls, by events.  Compiled without nvcc it runs on the
 * emulation, with small shapes and without the libraries: times then say nothing. */

#include "tests/gpu/device.cuh"

#include "kernels/cuda/fused.h"

extern "C" {
#include "tests/emulated/host.h"
#include "kernels/cuda/products.h"
#include "tests/kernels/cuda_compare.h"
}

#include <algorithm>
#include <initializer_list>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace {

struct pair {
    const char *name;
    double value;
};
struct form {
    const char *what;
    enum op op;
    pair number[16];
    double flop; /* of one launch; 0 = only checked */
};

cuda_case case_of(const form &f, dtype c, dtype g, bool add)
{
    cuda_case k = {};
    k.op = f.op;
    k.c = c;
    k.g = g;
    k.add = add;
    for (int i = 0; i < 16 && f.number[i].name; i++) {
        k.number[i].name = f.number[i].name;
        k.number[i].value = f.number[i].value;
    }
    return k;
}

/* experts' rows, evenly */
void even_counts(const cuda_case *c, kernel_args *k)
{
    const struct isa_info *info = isa_info(c->op);
    for (unsigned i = 0; i < info->noperands; i++)
        if (k->operand[i].dtype == DTYPE_I32)
            for (unsigned r = 0; r < k->operand[i].rows; r++)
                ((int32_t *)k->operand[i].data)[(size_t)r * k->operand[i].ld] = (int32_t)(k->operand[1].rows / k->operand[i].rows);
}

#define HEADS(h, k, d, w, s, b, win, cap, scale_)                                                            \
    {                                                                                                        \
        {"heads", h}, {"kv", k}, {"head", d}, {"u", w}, {"sequence", s}, {"t", (double)(s) * (b)}, {"window", win}, {"softcap", cap}, \
            {"scale", scale_}                                                                                \
    }
const form checks[] = {
    {"attention 64", OP_ATTENTION, HEADS(12, 12, 64, 64, 256, 1, 0, 0, 0.125), 0},
    {"attention 128, shared", OP_ATTENTION, HEADS(8, 2, 128, 128, 320, 1, 0, 0, 0.088), 0},
    {"attention 128, window", OP_ATTENTION, HEADS(4, 2, 128, 128, 320, 1, 100, 0, 0.088), 0},
    {"attention 256, cap", OP_ATTENTION, HEADS(2, 1, 256, 256, 256, 1, 0, 50, 0.0625), 0},
    {"attention 192/128", OP_ATTENTION, HEADS(4, 4, 192, 128, 256, 1, 0, 0, 0.072), 0},
    {"gradient 64", OP_ATTENTION_I, HEADS(12, 12, 64, 64, 256, 1, 0, 0, 0.125), 0},
    {"gradient 128, shared", OP_ATTENTION_I, HEADS(8, 2, 128, 128, 320, 2, 0, 0, 0.088), 0},
    {"gradient 128, window", OP_ATTENTION_I, HEADS(4, 2, 128, 128, 320, 1, 100, 0, 0.088), 0},
    {"gradient 256, cap", OP_ATTENTION_I, HEADS(2, 1, 256, 256, 256, 1, 0, 50, 0.0625), 0},
    {"gradient 192/128", OP_ATTENTION_I, HEADS(4, 4, 192, 128, 256, 1, 0, 0, 0.072), 0},
    {"product nt", OP_MATMUL_NT, {{"m", 384}, {"n", 520}, {"k", 256}}, 0},
    {"product nn", OP_MATMUL_NN, {{"m", 384}, {"n", 520}, {"k", 256}}, 0},
    {"product tn", OP_MATMUL_TN, {{"m", 384}, {"n", 520}, {"k", 256}}, 0},
    {"experts nt", OP_GROUPED_NT, {{"m", 600}, {"n", 264}, {"k", 136}, {"experts", 3}, {"blocks", 2}}, 0},
    {"experts nn", OP_GROUPED_NN, {{"m", 600}, {"n", 264}, {"k", 136}, {"experts", 3}, {"blocks", 2}}, 0},
    {"experts tn", OP_GROUPED_TN, {{"m", 600}, {"n", 264}, {"k", 136}, {"experts", 3}, {"blocks", 2}}, 0},
    {"fp8 nt", OP_MATMUL_NT, {{"m", 384}, {"n", 528}, {"k", 272}, {"fp8", 1}}, 0},
    {"fp8 nn", OP_MATMUL_NN, {{"m", 384}, {"n", 528}, {"k", 272}, {"fp8", 1}}, 0},
    {"fp8 tn", OP_MATMUL_TN, {{"m", 384}, {"n", 528}, {"k", 272}, {"fp8", 1}}, 0},
    {"fp8 experts nt", OP_GROUPED_NT, {{"m", 600}, {"n", 272}, {"k", 144}, {"experts", 3}, {"blocks", 2}, {"fp8", 1}}, 0},
    {"fp8 experts nn", OP_GROUPED_NN, {{"m", 600}, {"n", 272}, {"k", 144}, {"experts", 3}, {"blocks", 2}, {"fp8", 1}}, 0},
    {"fp8 experts tn", OP_GROUPED_TN, {{"m", 600}, {"n", 272}, {"k", 144}, {"experts", 3}, {"blocks", 2}, {"fp8", 1}}, 0},
    {"fp8 experts tn, one block", OP_GROUPED_TN, {{"m", 600}, {"n", 272}, {"k", 144}, {"experts", 3}, {"blocks", 1}, {"fp8", 1}}, 0},
};
const form benches[] = {
    {"product nt", OP_MATMUL_NT, {{"m", 8192}, {"n", 14336}, {"k", 4096}}, 2.0 * 8192 * 14336 * 4096},
    {"product nn", OP_MATMUL_NN, {{"m", 8192}, {"n", 4096}, {"k", 14336}}, 2.0 * 8192 * 14336 * 4096},
    {"product tn", OP_MATMUL_TN, {{"m", 14336}, {"n", 4096}, {"k", 8192}}, 2.0 * 8192 * 14336 * 4096},
    {"experts nt", OP_GROUPED_NT, {{"m", 16384}, {"n", 4096}, {"k", 4096}, {"experts", 8}, {"blocks", 1}}, 2.0 * 16384 * 4096 * 4096},
    {"experts tn", OP_GROUPED_TN, {{"m", 16384}, {"n", 4096}, {"k", 4096}, {"experts", 8}, {"blocks", 1}}, 2.0 * 16384 * 4096 * 4096},
    {"fp8 nt", OP_MATMUL_NT, {{"m", 8192}, {"n", 14336}, {"k", 4096}, {"fp8", 1}}, 2.0 * 8192 * 14336 * 4096},
    {"fp8 nn", OP_MATMUL_NN, {{"m", 8192}, {"n", 4096}, {"k", 14336}, {"fp8", 1}}, 2.0 * 8192 * 14336 * 4096},
    {"fp8 tn", OP_MATMUL_TN, {{"m", 14336}, {"n", 4096}, {"k", 8192}, {"fp8", 1}}, 2.0 * 8192 * 14336 * 4096},
    {"fp8 experts nt", OP_GROUPED_NT, {{"m", 16384}, {"n", 4096}, {"k", 4096}, {"experts", 8}, {"blocks", 1}, {"fp8", 1}}, 2.0 * 16384 * 4096 * 4096},
    {"fp8 experts tn", OP_GROUPED_TN, {{"m", 16384}, {"n", 4096}, {"k", 4096}, {"experts", 8}, {"blocks", 1}, {"fp8", 1}}, 2.0 * 16384 * 4096 * 4096},
    {"attention 64", OP_ATTENTION, HEADS(32, 8, 64, 64, 8192, 1, 0, 0, 0.125), 2.0 * 8192 * 8192 * 32 * 64},
    {"attention 128", OP_ATTENTION, HEADS(32, 8, 128, 128, 8192, 1, 0, 0, 0.088), 2.0 * 8192 * 8192 * 32 * 128},
    {"attention 192/128", OP_ATTENTION, HEADS(16, 16, 192, 128, 4096, 1, 0, 0, 0.072), 4096.0 * 4096 * 16 * 320},
    {"gradient 64", OP_ATTENTION_I, HEADS(32, 8, 64, 64, 8192, 1, 0, 0, 0.125), 5.0 * 8192 * 8192 * 32 * 64},
    {"gradient 128", OP_ATTENTION_I, HEADS(32, 8, 128, 128, 8192, 1, 0, 0, 0.088), 5.0 * 8192 * 8192 * 32 * 128},
};

#if defined(__CUDACC__)
} // namespace
/* cuda_repeats() would turn the emulation's threads around; a GPU has none */
extern "C" void cuda_host_set_reverse(int)
{
}
namespace {

bool has_eight()
{
    cudaDeviceProp p;
    return cudaGetDeviceProperties(&p, 0) == cudaSuccess && 10 * p.major + p.minor >= 89;
}
const cuda_memory on_device = {device_make, device_drop, device_store, device_fetch, device_finish};
const cuda_memory *const memory = &on_device;

cuda_libraries *libraries_open()
{
    static cuda_runtime r = {}; /* what choosing algorithms needs */
    cudaDeviceProp p;
    cuda_libraries *l = nullptr;
    if (cudaSetDevice(0) != cudaSuccess || cudaGetDeviceProperties(&p, 0) != cudaSuccess) {
        fprintf(stderr, "products: no GPU\n");
        exit(4);
    }
    r.EventCreateWithFlags = [](cuda_event *e, unsigned flags) { return (int)cudaEventCreateWithFlags(e, flags); };
    r.EventDestroy = [](cuda_event e) { return (int)cudaEventDestroy(e); };
    r.EventRecord = [](cuda_event e, cuda_stream s) { return (int)cudaEventRecord(e, s); };
    r.EventQuery = [](cuda_event e) { return (int)cudaEventQuery(e); };
    r.GetLastError = []() { return (int)cudaGetLastError(); };
    r.MemsetAsync = [](void *p, int value, size_t n, cuda_stream s) { return (int)cudaMemsetAsync(p, value, n, s); };
    r.EventElapsedTime = [](float *ms, cuda_event a, cuda_event b) { return (int)cudaEventElapsedTime(ms, a, b); };
    const char *why = cuda_libraries_open(&l, &r, p.name, 0, 10 * p.major + p.minor, p.multiProcessorCount, false);
    if (why)
        fprintf(stderr, "products: %s: only our own kernels are looked at\n", why);
    else if (!l->dnn_handle)
        fprintf(stderr, "products: cuDNN is missing: only our own attention is looked at\n");
    return why ? nullptr : l;
}

#else
const cuda_memory *const memory = nullptr;
bool has_eight()
{
    return true;
}
cuda_libraries *libraries_open()
{
    return nullptr;
}
#endif

/* of one launch, the median of several; 0 = it fails */
template <class F> double seconds_by(F launch)
{
    const int CALLS = EMULATED ? 1 : 20;
    double seconds[20];
    device_watch watch;
    for (int i = EMULATED ? 0 : -3; i < CALLS; i++) {
        watch.start();
        if (launch())
            return 0;
        seconds[i < 0 ? 0 : i] = watch.seconds();
    }
    std::sort(seconds, seconds + CALLS);
    return seconds[CALLS / 2];
}

double seconds_of(const cuda_case *c, cuda_sample *s)
{
    return seconds_by([&] { return cuda_sample_launch(c, s); });
}

/* the fastest of up to MOST_ALGORITHMS that cuBLASLt suggests, partial sums of any kind among them */
double best_product(const cuda_call *call, const product *p)
{
    const int MOST_ALGORITHMS = 64;
    cuda_libraries *l = call->libraries;
    product_plan *chosen = product_plan_get(call, p, false), one = {};
    lt_result found[MOST_ALGORITHMS];
    void *preference = nullptr;
    uint64_t room = call->workspace_bytes;
    int n = 0;
    double best = 0;
    if (!chosen || l->lt.cublasLtMatmulPreferenceCreate(&preference))
        return 0;
    if (!l->lt.cublasLtMatmulPreferenceSetAttribute(preference, LT_MAX_WORKSPACE, &room, sizeof room) &&
        l->lt.cublasLtMatmulAlgoGetHeuristic(l->lt_handle, chosen->desc, chosen->layout_a, chosen->layout_b, chosen->layout_c,
                                             chosen->layout_c, preference, MOST_ALGORITHMS, found, &n))
        n = 0;
    l->lt.cublasLtMatmulPreferenceDestroy(preference);
    one = *chosen;
    for (int i = 0; i < n; i++) {
        if (found[i].state || found[i].workspace_bytes > call->workspace_bytes)
            continue;
        one.algo = found[i].algo;
        one.workspace_bytes = found[i].workspace_bytes;
        double t = seconds_by([&] { return product_launch(call, p, &one); });
        best = t > 0 && (best <= 0 || t < best) ? t : best;
    }
    return best;
}

/* of what the library itself could do at best; 0 = it says nothing */
double best_seconds(enum op op, const cuda_sample *s)
{
    product p;
    cuda_call rest; /* of 8 bits: the product alone, without what rounds its operands */
    if (product_get(op, &s->args, &p))
        return product_operands(op, &s->call, false, &p, &rest) ? 0 : best_product(&rest, &p);
    if (op != OP_ATTENTION && op != OP_ATTENTION_I)
        return 0;
    return seconds_by([&] {
        const char *why = nullptr;
        return cudnn_attention_alone(op, &s->call, &why) ? why : "cuDNN does not take it";
    });
}

/* of 8 bits, which not every GPU has */
bool is_eight(const form &f)
{
    return strncmp(f.what, "fp8", 3) == 0;
}

/* Tensor cores keep some 14 bits of a sum of 8-bit products (arXiv 2412.19437, section 3.5), cuBLASLt's first pass too. */
double tolerance(const form &f, const cuda_case &c, bool prepared)
{
    if (is_eight(f) && !EMULATED)
        return 1e-2;
    return c.g == DTYPE_BF16 ? 8e-3 * (prepared ? 2 : 1) : c.c == DTYPE_BF16 ? 1e-4 : 2e-5;
}

bool is_grouped(enum op op)
{
    return op == OP_GROUPED_NT || op == OP_GROUPED_NN || op == OP_GROUPED_TN;
}

view made_on(cuda_call *call, uint32_t rows, uint32_t cols, uint32_t seed)
{
    view v = {device_make((size_t)rows * cols * 2), DTYPE_BF16, false, rows, cols, cols};
    product_fill(call, &v, seed);
    return v;
}

/* largest difference over the largest number, of bf16 */
double apart(const view *x, const view *y)
{
    size_t n = (size_t)x->rows * x->cols;
    uint16_t *a = (uint16_t *)malloc(2 * n), *b = (uint16_t *)malloc(2 * n);
    double worst = 0, most = 1e-30;
    device_fetch(a, x->data, 2 * n);
    device_fetch(b, y->data, 2 * n);
    for (size_t i = 0; i < n; i++) {
        float one, other;
        uint32_t bits[2] = {(uint32_t)a[i] << 16, (uint32_t)b[i] << 16};
        memcpy(&one, &bits[0], 4);
        memcpy(&other, &bits[1], 4);
        double d = fabs((double)one - (double)other);
        worst = d <= 1e30 ? std::max(worst, d) : 1e30;
        most = std::max(most, fabs((double)other));
    }
    free(a);
    free(b);
    return worst / most;
}

/* a linear layer and the gelu behind it as one product of cuBLASLt, whichever way is faster, and one by one */
int check_gelu(cuda_libraries *l, const char *filter)
{
    const uint32_t M = 384, N = 528, K = 256;
    int bad = 0;
    for (int back = 0; back < 2 && strstr("product and gelu", filter); back++) {
        enum op ops[] = {back ? OP_MATMUL_NN : OP_MATMUL_NT, back ? OP_GELU_I : OP_GELU};
        cuda_call call = {};
        kernel_args args[2] = {}, each[2];
        call.workspace = device_make(WORKSPACE_PRODUCT);
        call.workspace_bytes = WORKSPACE_PRODUCT;
        call.libraries = l;
        view x = made_on(&call, M, N, 4), own = made_on(&call, M, N, 5), out = made_on(&call, M, N, 6), want = made_on(&call, M, N, 7);
        view *p = args[0].operand, *a = args[1].operand;
        p[0] = back ? own : x;
        p[1] = made_on(&call, M, K, 1);
        p[2] = back ? made_on(&call, K, N, 2) : made_on(&call, N, K, 2);
        if (!back)
            p[3] = made_on(&call, 1, N, 3);
        a[0] = out;
        a[1] = p[0];
        if (back)
            a[2] = x;
        args[1].attr[ATTR(GELU, tanh)].i = 1;
        each[0] = args[0];
        each[1] = args[1];
        each[1].operand[0] = want;
        const kernel_args *list[] = {&args[0], &args[1]};
        product joined;
        product_get(ops[0], &args[0], &joined);
        joined.act = back ? PRODUCT_GELU_SLOPE : PRODUCT_GELU;
        joined.c = out;
        joined.aux = x;
        call.args = &args[0];
        product_plan *plan = l ? product_plan_get(&call, &joined, false) : nullptr;
        const char *why = plan ? product_launch(&call, &joined, plan) : cuda_fused(ops, list, 2, &call);
        for (int i = 0; i < 2 && !why; i++) {
            call.args = &each[i];
            why = cuda_kernel(ops[i], &call);
        }
        const char *late = device_finish();
        double error = why || late ? 1e30 : apart(&out, &want);
        bad |= error > 1.6e-2; /* the product is rounded between, and the result */
        printf("%-24s bf16 %s: %.2e%s%s%s\n", back ? "product and gelu's slope" : "product and gelu", plan ? "library" : "one by one", error,
               error > 1.6e-2 ? "  WRONG" : "", why || late ? ": " : "", why ? why : late ? late : "");
        for (void *m : {x.data, own.data, out.data, want.data, p[1].data, p[2].data, p[3].data, call.workspace})
            device_drop(m);
    }
    return bad;
}

int check(cuda_libraries *l, const char *filter)
{
    int bad = 0;
    for (const form &f : checks)
        for (unsigned mode = 0; mode < 8; mode++) {
            bool bf16 = mode & 1, add = mode & 2, own = mode & 4;
            bool attention = f.op == OP_ATTENTION || f.op == OP_ATTENTION_I;
            if ((add && attention) || (!own && !l) || (is_eight(f) && !has_eight()) || !strstr(f.what, filter))
                continue;
            cuda_case c = case_of(f, bf16 ? DTYPE_BF16 : DTYPE_F32, attention && bf16 ? DTYPE_BF16 : DTYPE_F32, add);
            c.memory = memory;
            c.libraries = own ? nullptr : l;
            c.prepare = !own;
            cuda_case_prepare *prepare = is_grouped(f.op) ? even_counts : f.op == OP_ATTENTION_I ? cuda_case_forward : nullptr;
            double most = tolerance(f, c, prepare), error = cuda_compare(&c, prepare, most);
            printf("%-24s %s%s %s: %.2e%s\n", f.what, bf16 ? "bf16" : "fp32", add ? " add" : "", own ? "own" : "library", error,
                   error <= most ? "" : "  WRONG");
            bad |= !(error <= most);
        }
    return bad | check_gelu(l, filter);
}

int bench(cuda_libraries *l, const char *filter)
{
    for (const form &f : benches)
        for (int own = 0; own < 2; own++) {
            form small = f;
            if (EMULATED) {
                for (pair &n : small.number)
                    if (n.name && n.value >= 4096)
                        n.value /= 64;
            }
            if ((!own && (!l || is_grouped(f.op))) || (is_eight(f) && !has_eight()) || !strstr(f.what, filter))
                continue;
            cuda_case c = case_of(small, DTYPE_BF16, f.op == OP_MATMUL_TN || f.op == OP_GROUPED_TN ? DTYPE_F32 : DTYPE_BF16, false);
            c.absent = f.op == OP_MATMUL_NT ? 1u << OPND(MATMUL_NT, bias) : 0;
            c.memory = memory;
            c.libraries = own ? nullptr : l;
            c.prepare = !own;
            cuda_sample s;
            const char *why = cuda_sample_make(&c, is_grouped(f.op) ? even_counts : nullptr, &s);
            double t = why ? 0 : seconds_of(&c, &s);
            double best = own || t <= 0 ? 0 : best_seconds(f.op, &s);
            printf("{\"what\": \"%s\", \"by\": \"%s\", \"us\": %.1f, \"tflop_s\": %.1f, \"of_best\": %.4f}\n", f.what,
                   own ? "own" : "library", t * 1e6, t > 0 ? f.flop / t * 1e-12 : 0, best > 0 ? best / t : 0);
            fflush(stdout);
            cuda_sample_free(&c, &s);
        }
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3 || (strcmp(argv[1], "check") != 0 && strcmp(argv[1], "bench") != 0)) {
        fprintf(stderr, "usage: products check|bench [WHAT]\n");
        return 2;
    }
    cuda_libraries *l = libraries_open();
    int status = (strcmp(argv[1], "check") == 0 ? check : bench)(l, argc > 2 ? argv[2] : "");
    cuda_libraries_close(l);
    return status;
}
