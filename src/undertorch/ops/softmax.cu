// Softmax over rows of half types and its gradient, for rows that are too wide for one block's registers. For Hopper.
//
// CLUSTER blocks on neighbouring SMs share a row, a thread of them A_THREAD vectors of 16 bytes, which stay in its
// registers: a row is read once. Blocks are small, so that several share an SM: while some wait for memory or for each
// other, others compute. Each warp takes exponentials relative to its own largest element, at once; warps of all blocks
// then exchange (largest, sum) through distributed shared memory, once a row, by stores that count themselves in at a
// barrier in the shared memory they go to: a cluster's own barrier would wait for all memory (MEMBAR). Where that was
// faster, a bulk copy brings a block's part into shared memory first.
//
// Compiled with: THREADS, CLUSTER (1 to 8), A_THREAD, RESIDENT (blocks that are to fit on an SM), KEEP (1: exponentials
// stay in registers, 0: they are computed again, in half the registers), HALF (1: float16, 0: bfloat16), BULK (1: the
// forward's rows come by bulk copies).

#if HALF
#include <cuda_fp16.h>
#else
#include <cuda_bf16.h>
#endif

constexpr float LOG2E = 1.4426950408889634f, LOWEST = -3.4028234663852886e38f;
constexpr int WARPS = THREADS / 32, FOUND = CLUSTER * WARPS;  // of the sums that make up a row's

typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#if HALF
constexpr u32 ALL_LOWEST = 0xfc00fc00u;  // -inf, twice
__device__ __forceinline__ float low(u32 pair) { return __half2float(__ushort_as_half((unsigned short)pair)); }
__device__ __forceinline__ float high(u32 pair) { return __half2float(__ushort_as_half((unsigned short)(pair >> 16))); }
__device__ __forceinline__ u32 larger(u32 a, u32 b) {
    u32 pair;
    asm("max.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
    return pair;
}
__device__ __forceinline__ u32 packed(float a, float b) {  // a in the lower half, as memory has it
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
    return pair;
}
#else
constexpr u32 ALL_LOWEST = 0xff80ff80u;
__device__ __forceinline__ float low(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
__device__ __forceinline__ u32 larger(u32 a, u32 b) {
    u32 pair;
    asm("max.bf16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
    return pair;
}
__device__ __forceinline__ u32 packed(float a, float b) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
    return pair;
}
#endif

// Read once, and not again.
__device__ __forceinline__ uint4 loaded(const uint4* from) {
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}

// Of a vector's elements, relative to `top`.
__device__ __forceinline__ void exponentials(uint4 v, float top, float* e) {
    const u32 pairs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        e[2 * i] = exp2_fast((low(pairs[i]) - top) * LOG2E);
        e[2 * i + 1] = exp2_fast((high(pairs[i]) - top) * LOG2E);
    }
}

__device__ __forceinline__ float largest_of_warp(float mine) {
#pragma unroll
    for (int d = 16; d; d >>= 1) mine = fmaxf(mine, __shfl_xor_sync(~0u, mine, d));
    return mine;
}

__device__ __forceinline__ float sum_of_warp(float mine) {
#pragma unroll
    for (int d = 16; d; d >>= 1) mine += __shfl_xor_sync(~0u, mine, d);
    return mine;
}

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void init(u64* barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}

// The one arrival, and so many bytes that are to come as well.
__device__ __forceinline__ void expect(u64* barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

// Until all has come. What never comes is a fault of this file: a trap ends it.
__device__ __forceinline__ void wait(u64* barrier) {
    for (u32 tries = 0;; tries++) {
        u32 done;
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n"
            "selp.u32 %0, 1, 0, p;\n"
            "}\n"
            : "=r"(done)
            : "r"(shared_address(barrier))
            : "memory");
        if (done) break;
        if (tries > (1u << 22)) __trap();
    }
}

// What a row's blocks tell each other.
struct Exchange {
    float2 found[FOUND];  // (largest, sum) of each warp, by rank and warp
    u64 complete;         // the barrier at which they are counted in, by their bytes
};

// Where this block stands, and its part of the row: whole vectors.
struct Part {
    u32 rank;
    long long row;
    int begin, count;
    __device__ __forceinline__ Part(int width, Exchange& exchange) {
        rank = 0;
#if CLUSTER > 1
        asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
        if (threadIdx.x == 0) {
            init(&exchange.complete);
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        __syncwarp();
        // Before it is written to, a block has to have begun.
        asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
        row = blockIdx.x / CLUSTER;
        const int vectors = width / 8, share = (vectors + CLUSTER - 1) / CLUSTER;
        begin = (int)rank * share;
        count = min(share, vectors - begin);
    }
};

// Hands `mine` of each warp to all blocks; `found` is then complete in each.
__device__ __forceinline__ void tell(Exchange& exchange, float2 mine, u32 rank) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float2* place = exchange.found + rank * WARPS + warp;
#if CLUSTER > 1
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
    // Counting bytes in before they are expected is right: the phase ends with this arrival, not before.
    if (threadIdx.x == 0) expect(&exchange.complete, FOUND * sizeof(float2));
    __syncwarp();
    if (lane < CLUSTER) {
        u32 there, barrier_there;
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(place)), "r"((u32)lane));
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier_there) : "r"(shared_address(&exchange.complete)), "r"((u32)lane));
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(there),
                     "r"(__float_as_uint(mine.x)), "r"(__float_as_uint(mine.y)), "r"(barrier_there)
                     : "memory");
    }
    wait(&exchange.complete);
#else
    if (lane == 0) *place = mine;
    __syncthreads();
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
#if CLUSTER > 1
    __cluster_dims__(CLUSTER, 1, 1)
#endif
        softmax_forward(const unsigned short* x, unsigned short* y, long long x_stride, int width) {
    __shared__ Exchange exchange;
    const Part part(width, exchange);
    const uint4* source = (const uint4*)(x + part.row * x_stride) + part.begin;
    uint4* target = (uint4*)(y + part.row * width) + part.begin;
#if BULK
    extern __shared__ __align__(128) uint4 staged[];
    __shared__ u64 arrived;
    if (threadIdx.x == 0) {
        init(&arrived);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        const u32 bytes = max(part.count, 0) * 16;
        expect(&arrived, bytes);
        if (bytes)
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                             shared_address(staged)),
                         "l"(source), "r"(bytes), "r"(shared_address(&arrived))
                         : "memory");
    }
    __syncthreads();
    wait(&arrived);
#endif
    uint4 v[A_THREAD];
#pragma unroll
    for (int k = 0; k < A_THREAD; k++) {
        const int at = k * THREADS + threadIdx.x;
        v[k] = make_uint4(ALL_LOWEST, ALL_LOWEST, ALL_LOWEST, ALL_LOWEST);
#if BULK
        if (at < part.count) v[k] = staged[at];
#else
        if (at < part.count) v[k] = loaded(source + at);
#endif
    }
    u32 most = ALL_LOWEST;
#pragma unroll
    for (int k = 0; k < A_THREAD; k++) most = larger(most, larger(larger(v[k].x, v[k].y), larger(v[k].z, v[k].w)));
    const float top = largest_of_warp(fmaxf(fmaxf(low(most), high(most)), LOWEST));
#if KEEP
    float kept[A_THREAD][8];
#endif
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < A_THREAD; k++) {
        float e[8];
        exponentials(v[k], top, e);
        sum += ((e[0] + e[1]) + (e[2] + e[3])) + ((e[4] + e[5]) + (e[6] + e[7]));
#if KEEP
#pragma unroll
        for (int i = 0; i < 8; i++) kept[k][i] = e[i];
#endif
    }
    tell(exchange, make_float2(top, sum_of_warp(sum)), part.rank);
    const int lane = threadIdx.x % 32;
    float row_top = LOWEST;
#pragma unroll
    for (int i = 0; i < FOUND; i += 32) {
        if (i + lane < FOUND) row_top = fmaxf(row_top, exchange.found[i + lane].x);
    }
    row_top = largest_of_warp(row_top);
    float row_sum = 0.0f;
#pragma unroll
    for (int i = 0; i < FOUND; i += 32) {
        if (i + lane < FOUND) row_sum += exchange.found[i + lane].y * exp2_fast((exchange.found[i + lane].x - row_top) * LOG2E);
    }
    // A row without anything above -inf has the sum 0.
    row_sum = sum_of_warp(row_sum);
#if KEEP
    const float scale = exp2_fast((top - row_top) * LOG2E) / row_sum;
#else
    const float scale = 1.0f / row_sum;
#endif
#pragma unroll
    for (int k = 0; k < A_THREAD; k++) {
        const int at = k * THREADS + threadIdx.x;
#if KEEP
        const float* e = kept[k];
#else
        float e[8];
        exponentials(v[k], row_top, e);
#endif
        if (at < part.count) {
            __stcs(target + at, make_uint4(packed(e[0] * scale, e[1] * scale), packed(e[2] * scale, e[3] * scale),
                                           packed(e[4] * scale, e[5] * scale), packed(e[6] * scale, e[7] * scale)));
        }
    }
}

__device__ __forceinline__ u32 gradient(u32 value, u32 given, float along) {
    return packed(low(value) * (low(given) - along), high(value) * (high(given) - along));
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
#if CLUSTER > 1
    __cluster_dims__(CLUSTER, 1, 1)
#endif
        softmax_backward(const unsigned short* dy, const unsigned short* y, unsigned short* dx, long long dy_stride,
                         long long y_stride, int width) {
    __shared__ Exchange exchange;
    const Part part(width, exchange);
    const uint4* gradients = (const uint4*)(dy + part.row * dy_stride) + part.begin;
    const uint4* results = (const uint4*)(y + part.row * y_stride) + part.begin;
    uint4* target = (uint4*)(dx + part.row * width) + part.begin;
    uint4 given[A_THREAD], value[A_THREAD];
#pragma unroll
    for (int k = 0; k < A_THREAD; k++) {
        const int at = k * THREADS + threadIdx.x;
        given[k] = value[k] = make_uint4(0, 0, 0, 0);
        if (at < part.count) given[k] = loaded(gradients + at), value[k] = loaded(results + at);
    }
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < A_THREAD; k++) {
        const u32 a[4] = {given[k].x, given[k].y, given[k].z, given[k].w};
        const u32 b[4] = {value[k].x, value[k].y, value[k].z, value[k].w};
        float here = 0.0f;
#pragma unroll
        for (int i = 0; i < 4; i++) here += low(a[i]) * low(b[i]), here += high(a[i]) * high(b[i]);
        sum += here;
    }
    tell(exchange, make_float2(sum_of_warp(sum), 0.0f), part.rank);
    const int lane = threadIdx.x % 32;
    float along = 0.0f;
#pragma unroll
    for (int i = 0; i < FOUND; i += 32) {
        if (i + lane < FOUND) along += exchange.found[i + lane].x;
    }
    along = sum_of_warp(along);
#pragma unroll
    for (int k = 0; k < A_THREAD; k++) {
        const int at = k * THREADS + threadIdx.x;
        if (at < part.count) {
            __stcs(target + at, make_uint4(gradient(value[k].x, given[k].x, along),
                                           gradient(value[k].y, given[k].y, along),
                                           gradient(value[k].z, given[k].z, along),
                                           gradient(value[k].w, given[k].w, along)));
        }
    }
}
