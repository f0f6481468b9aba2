/* The emulation of the device language: what it computes, and that it finds what a GPU would forgive or hang on. */

#include "kernels/cuda/language.cuh"

#include <CUnit/CUnit.h>

namespace {

/* sum of x by warps, then across them: shuffles, shared memory, a barrier */
__global__ void block_sum(float *out, const float *x, unsigned n)
{
    SHARED(float, part, 32);
    float sum = 0;
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x)
        sum += x[blockIdx.x * n + i];
    for (int o = 16; o; o /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, o);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned w = 1; w < blockDim.x / 32; w++)
            sum += part[w];
        out[blockIdx.x] = sum;
    }
}

__global__ void warp_operations(unsigned *out)
{
    unsigned t = threadIdx.x, i = 0;
    out[i++ * 64 + t] = __shfl_sync(0xffffffffu, t, 5);
    out[i++ * 64 + t] = __shfl_up_sync(0xffffffffu, t, 3u);
    out[i++ * 64 + t] = __shfl_down_sync(0xffffffffu, t, 3u, 8);
    out[i++ * 64 + t] = __ballot_sync(0xffffffffu, t % 3 == 0);
    out[i++ * 64 + t] = (unsigned)__any_sync(0xffffffffu, t == 40);
    out[i++ * 64 + t] = (unsigned)__all_sync(0xffffffffu, t < 40);
    if (t % 2)
        out[i++ * 64 + t] = __shfl_xor_sync(0xaaaaaaaau, t, 2);
    else
        out[i++ * 64 + t] = __match_any_sync(0x55555555u, t / 8);
    out[i++ * 64 + t] = atomicAdd(&out[7 * 64 + 64], 1u);
}

__global__ void barrier_missed(int *out)
{
    if (threadIdx.x == 3)
        return;
    __syncthreads();
    out[threadIdx.x] = 1;
}
__global__ void barriers_differ(int *out)
{
    if (threadIdx.x < 2) {
        __syncthreads();
        out[0] = 1;
    } else {
        __syncthreads();
        out[1] = 1;
    }
}
__global__ void warp_hangs(int *out)
{
    if (threadIdx.x != 7)
        out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1, 1);
    else
        __syncthreads();
}
__global__ void masks_differ(int *out)
{
    out[threadIdx.x] = __shfl_xor_sync(threadIdx.x < 8 ? 0xffffffffu : 0xffffff00u, 1, 1);
}
__global__ void shuffle_outside(int *out)
{
    out[threadIdx.x] = __shfl_down_sync(0xffffffffu, 1, 8u);
}
__global__ void barrier_forgotten(float *out)
{
    SHARED(float, word, 1);
    if (threadIdx.x == 1)
        word[0] = 1;
    out[threadIdx.x] = word[0];
}
__global__ void shared_unwritten(float *out)
{
    DYNAMIC_SHARED(float, word);
    out[threadIdx.x] = word[threadIdx.x];
}

void test_sums()
{
    float x[3 * 200], out[3];
    for (unsigned i = 0; i < 600; i++)
        x[i] = (float)(i % 7);
    for (int reverse = 0; reverse < 2; reverse++) {
        cuda_host_set_reverse(reverse);
        LAUNCH(block_sum, 3, 96, 0, nullptr, out, x, 200u);
        CU_ASSERT_PTR_NULL(cuda_launched());
        for (unsigned b = 0; b < 3; b++) {
            float want = 0;
            for (unsigned i = 0; i < 200; i++)
                want += x[b * 200 + i];
            CU_ASSERT(out[b] == want);
        }
    }
    cuda_host_set_reverse(0);
}

void test_warps()
{
    unsigned out[7 * 64 + 65] = {0};
    LAUNCH(warp_operations, 1, 64, 0, nullptr, out);
    CU_ASSERT_PTR_NULL(cuda_launched());
    for (unsigned t = 0; t < 64; t++) {
        unsigned lane = t % 32, first = t - lane;
        CU_ASSERT_EQUAL(out[t], first + 5);
        CU_ASSERT_EQUAL(out[64 + t], lane < 3 ? t : t - 3);
        CU_ASSERT_EQUAL(out[128 + t], t % 8 + 3 < 8 ? t + 3 : t);
        unsigned ballot = 0;
        for (unsigned i = 0; i < 32; i++)
            ballot |= (unsigned)((first + i) % 3 == 0) << i;
        CU_ASSERT_EQUAL(out[192 + t], ballot);
        CU_ASSERT_EQUAL(out[256 + t], first == 32);
        CU_ASSERT_EQUAL(out[320 + t], first == 0);
        CU_ASSERT_EQUAL(out[384 + t], t % 2 ? t ^ 2 : 0x55u << (lane / 8 * 8));
    }
    CU_ASSERT_EQUAL(out[7 * 64 + 64], 64);
}

void expect(const char *what)
{
    const char *why = cuda_launched();
    CU_ASSERT_PTR_NOT_NULL_FATAL(why);
    if (!strstr(why, what))
        printf("\n    %s\n", why);
    CU_ASSERT_PTR_NOT_NULL(strstr(why, what));
    CU_ASSERT_PTR_NULL(cuda_launched());
}

void test_mistakes()
{
    int out[64];
    LAUNCH(barrier_missed, 1, 8, 0, nullptr, out);
    expect("barrier_missed, block (0, 0, 0), thread 3 of 8: it ended while others wait at a barrier");
    LAUNCH(barriers_differ, 1, 4, 0, nullptr, out);
    expect("thread 2 of 4: threads of a block meet at different barriers");
    LAUNCH(warp_hangs, 1, 32, 0, nullptr, out);
    expect("1 wait at the barrier of line");
    LAUNCH(masks_differ, 1, 32, 0, nullptr, out);
    expect("different masks");
    LAUNCH(shuffle_outside, 1, 16, 0, nullptr, out);
    expect("a shuffle reads a lane that takes no part");
    LAUNCH(shuffle_outside, 1, 1025, 0, nullptr, out);
    expect("a block of too many threads");
    LAUNCH(shuffle_outside, 0, 32, 0, nullptr, out);
    expect("a grid that is empty");
    LAUNCH(shuffle_outside, 1, 32, 1 << 20, nullptr, out);
    expect("too much shared memory");
}

/* a forgotten barrier shows as a difference between the orders, unwritten shared memory as NaN */
void test_order_and_poison()
{
    float forward[2], backward[2];
    LAUNCH(barrier_forgotten, 1, 2, 0, nullptr, forward);
    cuda_host_set_reverse(1);
    LAUNCH(barrier_forgotten, 1, 2, 0, nullptr, backward);
    cuda_host_set_reverse(0);
    CU_ASSERT(isnan(forward[0]) && backward[0] == 1);
    LAUNCH(shared_unwritten, 1, 2, 2 * sizeof(float), nullptr, forward);
    CU_ASSERT(isnan(forward[0]) && isnan(forward[1]));
    CU_ASSERT_PTR_NULL(cuda_launched());
}

struct recorder {
    struct cuda_host_launch *launch[2];
    unsigned n;
};

const char *record(void *context, struct CUstream_st *, struct cuda_host_launch *l)
{
    struct recorder *r = static_cast<struct recorder *>(context);
    if (r->n == 2) {
        cuda_host_drop(l);
        return "the recorder is full";
    }
    r->launch[r->n++] = l;
    return nullptr;
}

__global__ void increment(int *at, int by)
{
    at[blockIdx.x] += by;
}

void test_recording()
{
    struct recorder r = {{nullptr, nullptr}, 0};
    int word[3] = {0, 0, 0};
    cuda_host_set_sink(record, &r);
    for (int by = 1; by <= 3; by++)
        LAUNCH(increment, 3, 1, 0, nullptr, word, by);
    cuda_host_set_sink(nullptr, nullptr);
    expect("the recorder is full");
    CU_ASSERT_EQUAL(word[0], 0);
    for (int i = 0; i < 5; i++)
        CU_ASSERT_PTR_NULL(cuda_host_run(r.launch[i % 2]));
    CU_ASSERT(word[0] == 7 && word[2] == 7);
    cuda_host_drop(r.launch[0]);
    cuda_host_drop(r.launch[1]);
}

} // namespace

extern "C" void suite_cuda_host(void);
extern "C" void suite_cuda_host(void)
{
    CU_pSuite s = CU_add_suite("cuda_host", nullptr, nullptr);
    CU_add_test(s, "sums by shuffles and barriers", test_sums);
    CU_add_test(s, "warp operations", test_warps);
    CU_add_test(s, "mistakes are named", test_mistakes);
    CU_add_test(s, "order and poison", test_order_and_poison);
    CU_add_test(s, "launches are recorded and run again", test_recording);
}
