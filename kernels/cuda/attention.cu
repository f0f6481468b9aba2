/* ATTENTION and its relatives: which kernels take what, and the merge of two partial results.
 *
 * cuDNN serves plain bf16 attention where it can (cudnn_attention.c); tensor-core kernels serve the rest of bf16, and the
 * plain ones fp32 and what is not aligned. */

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/products.h"

#define V(op, name) (&k->operand[OPND(op, name)])
#define INTEGER(op, name) (k->attr[ATTR(op, name)].i)
#define NUMBER(op, name) (k->attr[ATTR(op, name)].f)

enum { HEAD_LIMIT = 256, PLACE_LIMIT = 1 << 28 };

static struct attention_matrix matrix(const struct view *v)
{
    return {v->data, (int)v->ld, v->dtype == DTYPE_F32, v->add};
}

/* copies of 16 bytes: rows and heads begin at multiples of 8 elements */
static bool aligned(const struct view *v)
{
    return (uintptr_t)v->data % 16 == 0 && v->ld % 8 == 0;
}
static bool all_aligned(const struct view *const *v, int n)
{
    for (int i = 0; i < n; i++)
        if (!aligned(v[i]))
            return false;
    return true;
}
static bool tensor_cores(const struct attention_job &j, const struct view *const *v, int n)
{
    return v[0]->dtype == DTYPE_BF16 && j.head % 8 == 0 && j.value % 8 == 0 && j.scale > 0 && all_aligned(v, n);
}

static int clamp_window(int64_t window)
{
    return window > PLACE_LIMIT ? 0 : (int)window; /* nobody is so far behind: as good as none */
}

/* heads and dims of all four rows */
#define FILL(op, j)                                                                                          \
    do {                                                                                                     \
        (j).heads = (int)INTEGER(op, heads);                                                                 \
        (j).kv = (int)INTEGER(op, kv);                                                                       \
        (j).head = (int)INTEGER(op, head);                                                                   \
        (j).value = (int)(V(op, v)->cols / (uint32_t)(j).kv);                                                \
        (j).window = clamp_window(INTEGER(op, window));                                                      \
        (j).scale = (float)NUMBER(op, scale);                                                                \
        (j).softcap = (float)NUMBER(op, softcap);                                                            \
        (j).alibi = (int)INTEGER(op, alibi);                                                                 \
        (j).first_head = (int)INTEGER(op, first_head);                                                       \
        (j).mq = matrix(V(op, q));                                                                           \
        (j).mk = matrix(V(op, k));                                                                           \
        (j).mv = matrix(V(op, v));                                                                           \
        (j).mo = matrix(V(op, o));                                                                           \
        (j).lse = (float *)V(op, lse)->data;                                                                 \
        (j).ldl = (int)V(op, lse)->ld;                                                                       \
    } while (0)
#define FILL_WHOLE(op, j)                                                                                    \
    do {                                                                                                     \
        int length = (int)INTEGER(op, sequence), rows = (int)V(op, q)->rows;                                 \
        (j).sequences = rows / length;                                                                       \
        (j).q = (j).k = {1, length, length, rows, 0, 0};                                                     \
    } while (0)
#define FILL_PARTS(op, j)                                                                                    \
    do {                                                                                                     \
        int length = (int)INTEGER(op, sequence), parts = (int)INTEGER(op, parts), kparts = (int)INTEGER(op, kparts); \
        int part = (int)V(op, q)->rows / parts, kpart = (int)V(op, k)->rows / kparts;                        \
        (j).sequences = part / length;                                                                       \
        (j).q = {2 * parts, length / 2, length, part, (int)INTEGER(op, first), (int)INTEGER(op, shift)};     \
        (j).k = {2 * kparts, length / 2, length, kpart, (int)INTEGER(op, kfirst), (int)INTEGER(op, kshift)}; \
    } while (0)
#define FILL_GRADIENTS(op, j)                                                                                \
    do {                                                                                                     \
        (j).dout = matrix(V(op, dout));                                                                      \
        (j).dq = matrix(V(op, dq));                                                                          \
        (j).dk = matrix(V(op, dk));                                                                          \
        (j).dv = matrix(V(op, dv));                                                                          \
        (j).delta = (float *)c->workspace;                                                                   \
    } while (0)

const char *cuda_ATTENTION(const struct cuda_call *c)
{
    const struct kernel_args *k = c->args;
    const char *why;
    if (cudnn_attention(OP_ATTENTION, c, &why))
        return why;
    struct attention_job j = {};
    FILL(ATTENTION, j);
    FILL_WHOLE(ATTENTION, j);
    const struct view *all[] = {V(ATTENTION, q), V(ATTENTION, k), V(ATTENTION, v), V(ATTENTION, o)};
    if (tensor_cores(j, all, 4))
        return attention_forward_bf16(&j, c->stream);
    return attention_forward_plain(&j, V(ATTENTION, q)->dtype == DTYPE_F32, c->stream);
}

const char *cuda_ATTENTION_I(const struct cuda_call *c)
{
    const struct kernel_args *k = c->args;
    const char *why;
    if (cudnn_attention(OP_ATTENTION_I, c, &why))
        return why;
    struct attention_job j = {};
    FILL(ATTENTION_I, j);
    FILL_WHOLE(ATTENTION_I, j);
    FILL_GRADIENTS(ATTENTION_I, j);
    const struct view *all[] = {V(ATTENTION_I, q), V(ATTENTION_I, k),    V(ATTENTION_I, v),  V(ATTENTION_I, o),
                                V(ATTENTION_I, dout), V(ATTENTION_I, dq), V(ATTENTION_I, dk), V(ATTENTION_I, dv)};
    if (tensor_cores(j, all, 8))
        return attention_backward_bf16(&j, c->stream);
    return attention_backward_plain(&j, V(ATTENTION_I, q)->dtype == DTYPE_F32, c->stream);
}

const char *cuda_ATTENTION_PART(const struct cuda_call *c)
{
    const struct kernel_args *k = c->args;
    struct attention_job j = {};
    FILL(ATTENTION_PART, j);
    FILL_PARTS(ATTENTION_PART, j);
    const struct view *all[] = {V(ATTENTION_PART, q), V(ATTENTION_PART, k), V(ATTENTION_PART, v), V(ATTENTION_PART, o)};
    if (tensor_cores(j, all, 4))
        return attention_forward_bf16(&j, c->stream);
    return attention_forward_plain(&j, V(ATTENTION_PART, q)->dtype == DTYPE_F32, c->stream);
}

const char *cuda_ATTENTION_PART_I(const struct cuda_call *c)
{
    const struct kernel_args *k = c->args;
    struct attention_job j = {};
    FILL(ATTENTION_PART_I, j);
    FILL_PARTS(ATTENTION_PART_I, j);
    FILL_GRADIENTS(ATTENTION_PART_I, j);
    const struct view *all[] = {V(ATTENTION_PART_I, q),    V(ATTENTION_PART_I, k),  V(ATTENTION_PART_I, v),  V(ATTENTION_PART_I, o),
                                V(ATTENTION_PART_I, dout), V(ATTENTION_PART_I, dq), V(ATTENTION_PART_I, dk), V(ATTENTION_PART_I, dv)};
    if (tensor_cores(j, all, 8))
        return attention_backward_bf16(&j, c->stream);
    return attention_backward_plain(&j, V(ATTENTION_PART_I, q)->dtype == DTYPE_F32, c->stream);
}

/* a warp per row and head, a lane per column: weights of both sides from their log-sum-exps, in double as on the CPU */
__global__ void __launch_bounds__(256) attention_merge(float *o, int ldo, float *lse, int ldl, const float *part, int ldp,
                                                       const float *part_lse, int ldpl, int rows, int heads, int head)
{
    long long at = (long long)blockIdx.x * 8 + (int)threadIdx.x / 32;
    if (at >= (long long)rows * heads)
        return;
    size_t row = (size_t)(at / heads);
    int h = (int)(at % heads), lane = (int)threadIdx.x % 32;
    float *l = lse + row * (size_t)ldl + h, la = *l, lb = part_lse[row * (size_t)ldpl + (size_t)h];
    __syncwarp(); /* all lanes have read what the first writes */
    if (lb == -INFINITY)
        return;
    double most = la > lb ? la : lb, ea = exp(la - most), eb = exp(lb - most), sum = ea + eb;
    float wa = (float)(ea / sum), wb = (float)(eb / sum);
    float *a = o + row * (size_t)ldo + (size_t)h * (size_t)head;
    const float *b = part + row * (size_t)ldp + (size_t)h * (size_t)head;
    for (int i = lane; i < head; i += 32)
        a[i] = wa * a[i] + wb * b[i];
    if (lane == 0)
        *l = (float)(most + log(sum));
}

const char *cuda_ATTENTION_MERGE(const struct cuda_call *c)
{
    const struct kernel_args *k = c->args;
    const struct view *o = V(ATTENTION_MERGE, o), *lse = V(ATTENTION_MERGE, lse);
    const struct view *part = V(ATTENTION_MERGE, part), *part_lse = V(ATTENTION_MERGE, part_lse);
    long long warps = (long long)o->rows * lse->cols;
    LAUNCH(attention_merge, (unsigned)((warps + 7) / 8), 256, 0, c->stream, (float *)o->data, (int)o->ld, (float *)lse->data,
           (int)lse->ld, (const float *)part->data, (int)part->ld, (const float *)part_lse->data, (int)part_lse->ld, (int)o->rows,
           (int)lse->cols, (int)INTEGER(ATTENTION_MERGE, head));
    return cuda_launched();
}

__global__ void __launch_bounds__(256) move_statistics(float *lse, int ld, float *dense, int rows, int heads, int sequence, bool to_dense)
{
    long long n = (long long)rows * heads, step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        int row = (int)(i / heads), h = (int)(i % heads);
        float *a = lse + (size_t)row * (size_t)ld + h;
        float *b = dense + ((size_t)(row / sequence) * (size_t)heads + (size_t)h) * (size_t)sequence + (size_t)(row % sequence);
        if (to_dense)
            *b = *a;
        else
            *a = *b;
    }
}

const char *attention_statistics(const struct cuda_call *c, const struct view *lse, float *dense, uint32_t sequence, bool to_dense)
{
    uint64_t blocks = ((uint64_t)lse->rows * lse->cols + 255) / 256;
    LAUNCH(move_statistics, (unsigned)(blocks < 4096 ? blocks : 4096), 256, 0, c->stream, (float *)lse->data, (int)lse->ld, dense,
           (int)lse->rows, (int)lse->cols, (int)sequence, to_dense);
    return cuda_launched();
}

static const char *check_heads(const struct view *q, const struct view *v, int64_t heads, int64_t kv, int64_t head, int64_t sequence,
                               int64_t alibi)
{
    if (head > HEAD_LIMIT || v->cols / kv > HEAD_LIMIT)
        return "heads of more than 256 dimensions are not supported on GPUs";
    if (heads > 65535 || alibi > PLACE_LIMIT || q->rows / sequence > 65535)
        return "more than 65535 heads or sequences are not supported on GPUs";
    return q->rows > PLACE_LIMIT || v->rows > PLACE_LIMIT ? "more than 2^28 rows are not supported on GPUs" : NULL;
}
static const char *check_places(int64_t first, int64_t shift, int64_t parts)
{
    return first > PLACE_LIMIT || shift > PLACE_LIMIT || parts > PLACE_LIMIT ? "places beyond 2^28 are not supported on GPUs" : NULL;
}

#define CHECK_HEADS(op)                                                                                      \
    check_heads(V(op, q), V(op, v), INTEGER(op, heads), INTEGER(op, kv), INTEGER(op, head), INTEGER(op, sequence), \
                INTEGER(op, alibi))

const char *attention_check(enum op op, const struct kernel_args *k)
{
    const char *why = NULL;
    if (op == OP_ATTENTION)
        return CHECK_HEADS(ATTENTION);
    if (op == OP_ATTENTION_I)
        return CHECK_HEADS(ATTENTION_I);
    if (op == OP_ATTENTION_PART) {
        why = CHECK_HEADS(ATTENTION_PART);
        why = why ? why : check_places(INTEGER(ATTENTION_PART, first), INTEGER(ATTENTION_PART, shift), INTEGER(ATTENTION_PART, parts));
        return why ? why : check_places(INTEGER(ATTENTION_PART, kfirst), INTEGER(ATTENTION_PART, kshift), INTEGER(ATTENTION_PART, kparts));
    }
    if (op == OP_ATTENTION_PART_I) {
        why = CHECK_HEADS(ATTENTION_PART_I);
        why = why ? why
                  : check_places(INTEGER(ATTENTION_PART_I, first), INTEGER(ATTENTION_PART_I, shift), INTEGER(ATTENTION_PART_I, parts));
        return why ? why
                   : check_places(INTEGER(ATTENTION_PART_I, kfirst), INTEGER(ATTENTION_PART_I, kshift), INTEGER(ATTENTION_PART_I, kparts));
    }
    return NULL;
}
