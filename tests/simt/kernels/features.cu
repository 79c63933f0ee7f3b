// One kernel a feature.
#include <cassert>
#include <cstdio>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

extern "C" __global__ void double_buffer(const float4* in, float4* out, int tiles) {
    __shared__ float4 buffer[2][128];
    int t = threadIdx.x;
    __pipeline_memcpy_async(&buffer[0][t], &in[t], 16);
    __pipeline_commit();
    for (int i = 0; i < tiles; i++) {
        if (i + 1 < tiles) __pipeline_memcpy_async(&buffer[(i + 1) & 1][t], &in[(i + 1) * 128 + t], 16);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        float4 v = buffer[i & 1][127 - t];
        out[i * 128 + t] = make_float4(v.x + 1, v.y * 2, v.z - 3, -v.w);
        __syncthreads();
    }
}
// The same without its wait: what was in shared memory before (zeros) is read.
extern "C" __global__ void forgotten_wait(const float4* in, float4* out) {
    __shared__ float4 buffer[128];
    buffer[threadIdx.x] = make_float4(7, 7, 7, 7);
    __syncthreads();
    __pipeline_memcpy_async(&buffer[threadIdx.x], &in[threadIdx.x], 16);
    __pipeline_commit();
    __syncthreads();
    out[threadIdx.x] = buffer[threadIdx.x];
    __pipeline_wait_prior(0);
}

extern "C" __global__ void shuffles(const int* in, int* out) {
    int t = threadIdx.x, v = in[t];
    out[t] = __shfl_sync(0xffffffff, v, (t * 7 + 3) & 31);
    out[32 + t] = __shfl_up_sync(0xffffffff, v, 3);
    out[64 + t] = __shfl_down_sync(0xffffffff, v, 5);
    out[96 + t] = __shfl_xor_sync(0xffffffff, v, 9);
    out[128 + t] = __shfl_up_sync(0xffffffff, v, 2, 8);
    out[160 + t] = __shfl_sync(0xffffffff, v, 5, 16);
}
// The two halves of a warp part, and each shuffles among itself.
extern "C" __global__ void parted_shuffles(const int* in, int* out) {
    int t = threadIdx.x, v = in[t];
    if (t < 16) v = __shfl_xor_sync(0x0000ffff, v * 2, 1);
    else v = __shfl_xor_sync(0xffff0000, v * 3, 2);
    out[t] = v;
}
// Lanes come to one shuffle on different ways: it waits for all.
extern "C" __global__ void meeting(const int* in, int* out) {
    int t = threadIdx.x, v = in[t];
    if (t % 3 == 0) { for (int i = 0; i < t; i++) v = v * 5 + 1; }
    v = __shfl_xor_sync(0xffffffff, v, 1);
    out[t] = v;
}
extern "C" __global__ void votes(const int* in, unsigned* out) {
    int t = threadIdx.x, v = in[t];
    out[t] = __ballot_sync(0xffffffff, v > 3);
    out[32 + t] = __all_sync(0xffffffff, v >= 0);
    out[64 + t] = __any_sync(0xffffffff, v == 5);
    out[96 + t] = __match_any_sync(0xffffffff, v);
    int same;
    out[128 + t] = __match_all_sync(0xffffffff, v >> 10, &same) + same;
    out[160 + t] = __reduce_add_sync(0xffffffff, v);
    out[192 + t] = __reduce_min_sync(0xffffffff, -v);
    out[224 + t] = __reduce_xor_sync(0xffffffff, (unsigned)v);
    out[256 + t] = 0;
    if (v & 1) out[256 + t] = __activemask();
}

struct Pair { float a; double b; short c[3]; };
__device__ __noinline__ double called(Pair p, int n, float* extra) {
    *extra = p.a * n;
    double sum = p.b;
    for (int i = 0; i < n; i++) sum += p.c[i % 3];
    return sum;
}
extern "C" __global__ void device_function(Pair p, double* out) {
    float extra;
    double sum = called(p, threadIdx.x, &extra);
    out[threadIdx.x] = sum + extra;
}

__constant__ float table[5] = {1.5f, -2.f, 3.25f, 0.f, 8.f};
__device__ int visits[4] = {10, 20, 30, 40};
extern "C" __global__ void variables(float* out, int* seen) {
    out[threadIdx.x] = table[threadIdx.x % 5];
    if (threadIdx.x < 4) seen[threadIdx.x] = atomicAdd(&visits[threadIdx.x], 1);
}

extern "C" __global__ void local_array(const int* in, int* out) {
    int stack[16];
    for (int i = 0; i < 16; i++) stack[i] = i * i + threadIdx.x;
    out[threadIdx.x] = stack[in[threadIdx.x] & 15] + stack[(in[threadIdx.x] + 5) & 15];
}
__device__ __noinline__ int through_pointer(const int* p, int i) { return p[i]; }
extern "C" __global__ void generic_pointers(const int* global, int* out) {
    __shared__ int shared[32];
    int local[32];
    int t = threadIdx.x;
    shared[t] = 1000 + t;
    for (int i = 0; i < 32; i++) local[i] = 2000 + 100 * t + i;
    __syncthreads();
    const int* p = t % 3 == 0 ? global : t % 3 == 1 ? shared : local;
    out[t] = through_pointer(p, 31 - t);
}

extern "C" __global__ void prints(int n) {
    if (threadIdx.x < n) printf("thread %d of %u: %5.2f %s %c %lld\n", threadIdx.x, blockDim.x, threadIdx.x * 0.5, "yes", 'x', 1ll << 40);
}
extern "C" __global__ void asserts(int n) { assert(threadIdx.x + blockIdx.x * 32 < n); }
extern "C" __global__ void traps() { if (threadIdx.x == 5) __trap(); }
extern "C" __global__ void out_of_bounds(int* x, int n) { x[threadIdx.x * n] = 1; }
extern "C" __global__ void misaligned(char* x, int* out) { out[threadIdx.x] = *(int*)(x + threadIdx.x); }
extern "C" __global__ void shared_out_of_bounds(int* out, int n) {
    __shared__ int s[64];
    s[threadIdx.x + n] = 1;
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void missing_arrival() { if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;"); }
extern "C" __global__ void waits_for_nobody(volatile int* flag) { while (*flag == 0) {} }

// Producers arrive, consumers wait.
extern "C" __global__ void named_barriers(int* out) {
    __shared__ int value[64];
    int t = threadIdx.x;
    if (t < 64) {
        value[t] = t * 3;
        __threadfence_block();
        asm volatile("bar.arrive 3, 128;" ::: "memory");
    } else {
        asm volatile("bar.sync 3, 128;" ::: "memory");
        out[t - 64] = value[127 - t];
    }
}
extern "C" __global__ void counting_barriers(const int* in, int* out) {
    int v = in[threadIdx.x];
    out[threadIdx.x] = __syncthreads_count(v > 0);
    out[blockDim.x + threadIdx.x] = __syncthreads_and(v > -100);
    out[2 * blockDim.x + threadIdx.x] = __syncthreads_or(v > 100);
}

extern "C" __global__ void halves(const __half2* a, const __half2* b, __half2* out, const __nv_bfloat162* c, __nv_bfloat162* d) {
    int t = threadIdx.x;
    out[t] = __hfma2(a[t], b[t], __hadd2(a[t], b[t]));
    d[t] = __hfma2(c[t], c[t], c[t]);
}
extern "C" __global__ void doubles(const double* a, const double* b, double* out) {
    int t = threadIdx.x;
    out[t] = a[t] / b[t] + sqrt(fabs(a[t])) * b[t];
}
extern "C" __global__ void long_integers(const long long* a, const long long* b, long long* out, unsigned long long* u) {
    int t = threadIdx.x;
    out[t] = a[t] / b[t] + a[t] % b[t] + (a[t] >> (t & 63));
    u[t] = __umul64hi(a[t], b[t]) ^ (unsigned long long)__popcll(a[t]) ^ __brevll(b[t]);
}
extern "C" __global__ void atomics(int* i, unsigned* u, float* f, double* d, unsigned long long* l) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&i[0], t);
    atomicMin(&i[1], -t);
    atomicMax(&i[2], t);
    atomicXor(&i[3], t);
    atomicInc(&u[0], 9);
    atomicDec(&u[1], 6);
    atomicOr(&u[2], 1u << (t & 31));
    atomicAdd(f, 0.5f);
    atomicAdd(d, 0.25);
    atomicMax(l, (unsigned long long)t << 33);
}
extern "C" __global__ void ends_early(int* out, int n) {
    if (threadIdx.x >= n) return;
    __syncthreads();
    out[threadIdx.x] = 1;
    __syncthreads();
    if (threadIdx.x & 1) return;
    __syncthreads();
    out[threadIdx.x] = 2;
}
extern "C" __global__ void transcendentals(const float* in, float* out, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    float x = in[i];
    out[i] = __expf(x);
    out[n + i] = __logf(fabsf(x) + 0.1f);
    out[2 * n + i] = __sinf(x);
    out[3 * n + i] = __cosf(x);
    out[4 * n + i] = tanhf(x);
    out[5 * n + i] = expf(x);
    out[6 * n + i] = rsqrtf(fabsf(x) + 0.1f);
    out[7 * n + i] = powf(fabsf(x), 1.7f);
    out[8 * n + i] = sinf(x);
    out[9 * n + i] = erff(x);
}
