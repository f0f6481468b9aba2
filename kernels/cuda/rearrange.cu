/* Rows that move elements: copies between formats, column blocks, concatenation, latent attention's keys and values.
 *
 * All but one sum are one kernel that copies several equal rectangles in a launch, blockIdx.z counting them. */

#include "kernels/cuda/pack.cuh"

namespace {

/* piece z begins z * step elements after the first; steps may be negative or 0 */
template <class Y, class X> struct copy_args {
    Y *y;
    const X *x;
    size_t ld_y, ld_x, rows, cols;
    int64_t step_y, step_x;
};
template <int N, class Y, class X> __global__ void __launch_bounds__(BLOCK) copy_kernel(const copy_args<Y, X> a)
{
    size_t j = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    Y *y = a.y + (int64_t)blockIdx.z * a.step_y;
    const X *x = a.x + (int64_t)blockIdx.z * a.step_x;
    for (size_t i = (size_t)blockIdx.y * blockDim.y + threadIdx.y; j < a.cols && i < a.rows; i += (size_t)gridDim.y * blockDim.y) {
        float v[N];
        load<N>(v, x + i * a.ld_x + j);
        store<N>(y + i * a.ld_y + j, v);
    }
}

/* a rectangle in each of two views, `pieces` times; columns count from the views' beginnings */
struct move {
    const struct view *y, *x;
    size_t rows, cols, pieces;
    size_t y_column, x_column;
    int64_t y_step, x_step; /* elements */
};

template <class Y, class X> const char *move_typed(const struct cuda_call *c, const struct move *m)
{
    size_t sy = sizeof(Y), sx = sizeof(X);
    copy_args<Y, X> a = {static_cast<Y *>(m->y->data) + m->y_column, static_cast<const X *>(m->x->data) + m->x_column,
                         m->y->ld, m->x->ld, m->rows, m->cols, m->y_step, m->x_step};
    bool packed = m->cols % PACK == 0 && (uintptr_t)a.y % 16 == 0 && (uintptr_t)a.x % 16 == 0 &&
                  (m->rows == 1 || (a.ld_y * sy % 16 == 0 && a.ld_x * sx % 16 == 0)) &&
                  (m->pieces == 1 || (m->y_step * (int64_t)sy % 16 == 0 && m->x_step * (int64_t)sx % 16 == 0));
    if (a.ld_y == a.cols && a.ld_x == a.cols) {
        a.cols *= a.rows;
        a.rows = 1;
    }
    if (!a.cols)
        return nullptr;
    struct shape s = map_shape(a.rows, packed ? a.cols / PACK : a.cols);
    s.grid.z = (unsigned)m->pieces;
    if (packed)
        LAUNCH((copy_kernel<PACK, Y, X>), s.grid, s.block, 0, c->stream, a);
    else
        LAUNCH((copy_kernel<1, Y, X>), s.grid, s.block, 0, c->stream, a);
    return cuda_launched();
}

const char *move(const struct cuda_call *c, const struct move &m)
{
    if (m.y->dtype == DTYPE_F32)
        return m.x->dtype == DTYPE_F32 ? move_typed<float, float>(c, &m) : move_typed<float, bf16>(c, &m);
    return m.x->dtype == DTYPE_F32 ? move_typed<bf16, float>(c, &m) : move_typed<bf16, bf16>(c, &m);
}

/* drope = the sum over heads of dk's last r columns, in head order */
template <class T> struct rope_args {
    T *y;
    const T *x;
    size_t ld_y, ld_x;
    unsigned rows, cols, heads, head, from;
};
template <class T> __global__ void __launch_bounds__(BLOCK) rope_sum_kernel(const rope_args<T> a)
{
    size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x, i = at / a.cols, j = at % a.cols;
    if (i >= a.rows)
        return;
    float sum = 0;
    for (unsigned h = 0; h < a.heads; h++)
        sum += widen(a.x[i * a.ld_x + (size_t)h * a.head + a.from + j]);
    a.y[i * a.ld_y + j] = narrow<T>(sum);
}

template <class T> const char *rope_sum(const struct cuda_call *c)
{
    const struct view *y = &OPERAND(MLA_KEYS_I, drope), *x = &OPERAND(MLA_KEYS_I, dk);
    unsigned head = (unsigned)INTEGER(MLA_KEYS_I, head);
    rope_args<T> a = {static_cast<T *>(y->data), static_cast<const T *>(x->data), y->ld, x->ld, y->rows, y->cols,
                      (unsigned)INTEGER(MLA_KEYS_I, heads), head, head - y->cols};
    LAUNCH(rope_sum_kernel<T>, blocks_for((size_t)y->rows * y->cols, BLOCK), BLOCK, 0, c->stream, a);
    return cuda_launched();
}

/* from a's beginning to b's, in elements: two operands of one kernel's pieces */
int64_t distance(const struct view *a, const struct view *b)
{
    return ((int64_t)(uintptr_t)b->data - (int64_t)(uintptr_t)a->data) / (int64_t)isa_dtype_bytes(a->dtype);
}

} // namespace

const char *cuda_COPY(const struct cuda_call *c)
{
    const struct view *y = &OPERAND(COPY, y), *x = &OPERAND(COPY, x);
    return move(c, {y, x, y->rows, y->cols, 1, 0, 0, 0, 0});
}

const char *cuda_COLUMNS_SPLIT(const struct cuda_call *c)
{
    const struct view *y = &OPERAND(COLUMNS_SPLIT, y), *x = &OPERAND(COLUMNS_SPLIT, x);
    return move(c, {y, x, x->rows, y->cols, (size_t)INTEGER(COLUMNS_SPLIT, parts), 0, 0, (int64_t)x->rows * y->ld, y->cols});
}

const char *cuda_COLUMNS_JOIN(const struct cuda_call *c)
{
    const struct view *y = &OPERAND(COLUMNS_JOIN, y), *x = &OPERAND(COLUMNS_JOIN, x);
    return move(c, {y, x, y->rows, x->cols, (size_t)INTEGER(COLUMNS_JOIN, parts), 0, 0, x->cols, (int64_t)y->rows * x->ld});
}

const char *cuda_CONCAT(const struct cuda_call *c)
{
    const struct view *y = &OPERAND(CONCAT, y), *a = &OPERAND(CONCAT, a), *b = &OPERAND(CONCAT, b);
    if (a->ld == b->ld)
        return move(c, {y, a, y->rows, a->cols, 2, 0, 0, a->cols, distance(a, b)});
    const char *why = move(c, {y, a, y->rows, a->cols, 1, 0, 0, 0, 0});
    return why ? why : move(c, {y, b, y->rows, b->cols, 1, a->cols, 0, 0, 0});
}

const char *cuda_CONCAT_I(const struct cuda_call *c)
{
    const struct view *dy = &OPERAND(CONCAT_I, dy), *a = &OPERAND(CONCAT_I, da), *b = &OPERAND(CONCAT_I, db);
    if (a->ld == b->ld)
        return move(c, {a, dy, dy->rows, a->cols, 2, 0, 0, distance(a, b), a->cols});
    const char *why = move(c, {a, dy, dy->rows, a->cols, 1, 0, 0, 0, 0});
    return why ? why : move(c, {b, dy, dy->rows, b->cols, 1, 0, a->cols, 0, 0});
}

/* head h of k = [kv's | rope], of v = the rest of kv's */
const char *cuda_MLA_KEYS(const struct cuda_call *c)
{
    const struct view *k = &OPERAND(MLA_KEYS, k), *v = &OPERAND(MLA_KEYS, v), *kv = &OPERAND(MLA_KEYS, kv),
                      *rope = &OPERAND(MLA_KEYS, rope);
    size_t heads = (size_t)INTEGER(MLA_KEYS, heads), head = (size_t)INTEGER(MLA_KEYS, head), u = v->cols / heads;
    size_t r = rope->cols, own = head - r;
    int64_t one = (int64_t)(own + u);
    const char *why = move(c, {k, kv, kv->rows, own, heads, 0, 0, (int64_t)head, one});
    why = why ? why : move(c, {k, rope, kv->rows, r, heads, own, 0, (int64_t)head, 0});
    return why ? why : move(c, {v, kv, kv->rows, u, heads, 0, own, (int64_t)u, one});
}

const char *cuda_MLA_KEYS_I(const struct cuda_call *c)
{
    const struct view *dkv = &OPERAND(MLA_KEYS_I, dkv), *dk = &OPERAND(MLA_KEYS_I, dk), *dv = &OPERAND(MLA_KEYS_I, dv);
    size_t heads = (size_t)INTEGER(MLA_KEYS_I, heads), head = (size_t)INTEGER(MLA_KEYS_I, head), u = dv->cols / heads;
    size_t own = head - OPERAND(MLA_KEYS_I, drope).cols;
    int64_t one = (int64_t)(own + u);
    const char *why = move(c, {dkv, dk, dk->rows, own, heads, 0, 0, one, (int64_t)head});
    why = why ? why : move(c, {dkv, dv, dk->rows, u, heads, own, 0, one, (int64_t)u});
    return why ? why : BY_DTYPE(dk->dtype, rope_sum, c);
}
