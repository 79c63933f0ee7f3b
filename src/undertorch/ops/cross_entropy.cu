// Cross-entropy of bfloat16 logits and its gradient for an incoming gradient of 1, with one read of the logits and one
// write of the gradient: the row stays in shared memory between the two. For Hopper (sm_90a).
//
// Blocks are persistent. A producer warp moves pieces of rows through a ring of slots in shared memory by bulk copies,
// so that the next row arrives and the last one leaves while this one is computed:
//     load (copy engine) -> full[slot] -> pass 1: largest logit, sum of exponentials -> pass 2: gradient, in the slot
//     -> done[slot] -> store (copy engine) -> load of the piece that takes the slot next
// CLUSTER = 2: two blocks on neighbouring SMs take half a row each, for rows that do not fit into one SM's shared
// memory; they exchange (largest, sum) through distributed shared memory.
//
// One exponential an element a pass: a thread rescales its sum only where its running maximum grew.
//
// Compiled with: THREADS (that compute), CLUSTER (1 or 2), SLOTS of SLOT_BYTES, SMOOTH, Z_LOSS (0 or 1).

#include <cuda_bf16.h>

constexpr float LOG2E = 1.4426950408889634f, LN2 = 0.6931471805599453f, LOWEST = -3.0e38f;
constexpr int WARPS = THREADS / 32;
constexpr int SLOT_VECTORS = SLOT_BYTES / 16, A_THREAD = SLOT_VECTORS / THREADS;  // of 16 bytes, 8 elements
static_assert(SLOT_VECTORS % THREADS == 0, "threads share a whole slot evenly");
constexpr int PENDING = 2;  // stores that may still be reading their slots when the next load is issued

typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void barrier_init(u64* barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void arrive(u64* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void expect(u64* barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

// Waits for the barrier's phase of this parity to complete. What never comes is a fault of this file: a trap ends it.
__device__ __forceinline__ void wait(u64* barrier, u32 parity) {
    for (u32 tries = 0;; tries++) {
        u32 done;
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n"
            "}\n"
            : "=r"(done)
            : "r"(shared_address(barrier)), "r"(parity)
            : "memory");
        if (done) return;
        if (tries > (1u << 22)) __trap();
    }
}

__device__ __forceinline__ void load_piece(void* slot, const void* from, u32 bytes, u64* full) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(slot)),
        "l"(from), "r"(bytes), "r"(shared_address(full))
        : "memory");
}

__device__ __forceinline__ void store_piece(void* to, const void* slot, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(slot)),
                 "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

struct Sums {
    float top, total, plain;  // largest logit; sum of exp(logit - top); sum of (logit - about)
};

__device__ __forceinline__ Sums joined(Sums a, Sums b) {
    float top = fmaxf(a.top, b.top);
    return {top, a.total * exp2_fast((a.top - top) * LOG2E) + b.total * exp2_fast((b.top - top) * LOG2E),
            a.plain + b.plain};
}

// What the lanes of a warp found, together: one exponential a lane.
__device__ __forceinline__ Sums of_warp(Sums mine) {
    float top = mine.top;
#pragma unroll
    for (int d = 16; d; d >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
    mine.total *= exp2_fast((mine.top - top) * LOG2E);
#pragma unroll
    for (int d = 16; d; d >>= 1) {
        mine.total += __shfl_xor_sync(~0u, mine.total, d);
        if (SMOOTH) mine.plain += __shfl_xor_sync(~0u, mine.plain, d);
    }
    return {top, mine.total, mine.plain};
}

// The next slot of the ring, and the parity of the phase that its barriers are in.
struct Slot {
    int index;
    u32 phase;
    __device__ __forceinline__ void next() {
        if (++index == SLOTS) index = 0, phase ^= 1;
    }
};

__device__ __forceinline__ float low(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

__device__ __forceinline__ u32 packed(float a, float b) {  // a in the lower half, as memory has it
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
    return pair;
}

// The rows of a block (or pair of blocks), piece by piece, without those whose label is ignored.
struct Walk {
    int row, piece;
};

extern "C" __global__ void __launch_bounds__(THREADS + 32, 1)
#if CLUSTER > 1
    __cluster_dims__(CLUSTER, 1, 1)
#endif
        cross_entropy(const __nv_bfloat16* logits, const long long* labels, float* loss, float* lse,
                      __nv_bfloat16* gradient, const float* denominator, long long* wrong, long long stride, int rows,
                      int width, long long ignore_index, float smoothing, float z_loss) {
    extern __shared__ __align__(128) unsigned char ring[];
    u64* full = (u64*)(ring + SLOTS * SLOT_BYTES);
    u64* done = full + SLOTS;
    u64* met = done + SLOTS;                  // one for each parity of the row
    Sums* partial = (Sums*)(met + 2);         // [2][WARPS]
    Sums* other = partial + 2 * WARPS;        // [2][2]: what the other block found, 16 bytes apart

    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    u32 rank = 0;
    if (CLUSTER > 1) asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    const int first_row = blockIdx.x / CLUSTER, step = gridDim.x / CLUSTER;
    // This block's columns, whole vectors of 8.
    const int vectors = width / 8, half = (vectors + CLUSTER - 1) / CLUSTER;
    const int begin = (int)rank * half, count = min(half, vectors - begin);
    const int pieces = (count + SLOT_VECTORS - 1) / SLOT_VECTORS;

    if (thread == 0) {
        for (int i = 0; i < SLOTS; i++) {
            barrier_init(full + i, 1);
            barrier_init(done + i, WARPS);
        }
        barrier_init(met, 1);
        barrier_init(met + 1, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (CLUSTER > 1) {
        asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    }

    if (warp == WARPS) {
        if (lane == 0) {
            auto skip = [&](int row) {
                while (row < rows && labels[row] == ignore_index) row += step;
                return row;
            };
            auto bytes = [&](int piece) { return (u32)min(SLOT_VECTORS, count - piece * SLOT_VECTORS) * 16u; };
            Walk in = {skip(first_row), 0}, out = in;
            Slot loading = {0, 0}, storing = {0, 0};
            auto load = [&]() {
                if (in.row >= rows) return;
                u64* barrier = full + loading.index;
                expect(barrier, bytes(in.piece));
                load_piece(ring + loading.index * SLOT_BYTES,
                           logits + in.row * stride + (begin + in.piece * SLOT_VECTORS) * 8ll, bytes(in.piece),
                           barrier);
                loading.next();
                if (++in.piece == pieces) in = {skip(in.row + step), 0};
            };
            for (int i = 0; i < SLOTS; i++) load();
            for (int stored = 0; out.row < rows; stored++) {
                wait(done + storing.index, storing.phase);
                store_piece(gradient + (long long)out.row * width + (begin + out.piece * SLOT_VECTORS) * 8ll,
                            ring + storing.index * SLOT_BYTES, bytes(out.piece));
                storing.next();
                if (++out.piece == pieces) out = {skip(out.row + step), 0};
                asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
                if (stored >= PENDING) load();  // into the slot of piece stored - PENDING, which has been read
            }
            asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
        }
    } else {
        Slot first = {0, 0};  // of the row
        int parity = 0;       // of the row
        u32 phases = 0;  // of the meetings: bit 0 and 1
        const float mean = denominator ? 1.0f / *denominator : 1.0f;
        for (int row = first_row; row < rows; row += step) {
            const long long label = labels[row];
            uint4* to = (uint4*)(gradient + (long long)row * width) + begin;
            if (label == ignore_index) {
                for (int i = thread; i < count; i += THREADS) to[i] = make_uint4(0, 0, 0, 0);
                if (thread == 0 && rank == 0) loss[row] = 0.0f, lse[row] = 0.0f, lse[rows + row] = 0.0f;
                continue;
            }
            const bool valid = label >= 0 && label < width;
            const float z = valid ? __bfloat162float(logits[row * stride + label]) : 0.0f;
            const float about = fabsf(z) < 1e38f ? z : 0.0f;

            // Pass 1. `reference` is top * log2(e) as it was rounded, so that one fused multiply-add makes an exponent.
            Sums mine = {LOWEST, 0.0f, 0.0f};
            float reference = LOWEST * 1.0f;
            auto take = [&](uint4 v) {
                const u32 pairs[4] = {v.x, v.y, v.z, v.w};
                float f[8], e[8];
#pragma unroll
                for (int k = 0; k < 4; k++) f[2 * k] = low(pairs[k]), f[2 * k + 1] = high(pairs[k]);
                const float top = fmaxf(fmaxf(fmaxf(f[0], f[1]), fmaxf(f[2], f[3])),
                                        fmaxf(fmaxf(f[4], f[5]), fmaxf(f[6], f[7])));
                if (top > mine.top) {
                    const float next = top * LOG2E;
                    mine.total *= exp2_fast(reference - next);
                    mine.top = top;
                    reference = next;
                }
#pragma unroll
                for (int k = 0; k < 8; k++) e[k] = exp2_fast(fmaf(f[k], LOG2E, -reference));
                mine.total += ((e[0] + e[1]) + (e[2] + e[3])) + ((e[4] + e[5]) + (e[6] + e[7]));
                if (SMOOTH) {
#pragma unroll
                    for (int k = 0; k < 8; k++) mine.plain += f[k] - about;
                }
            };
            Slot slot = first;
            for (int piece = 0; piece < pieces; piece++, slot.next()) {
                wait(full + slot.index, slot.phase);
                const uint4* values = (const uint4*)(ring + slot.index * SLOT_BYTES) + thread;
                const int here = count - piece * SLOT_VECTORS;
                if (here >= SLOT_VECTORS) {
                    uint4 v[A_THREAD];
#pragma unroll
                    for (int k = 0; k < A_THREAD; k++) v[k] = values[k * THREADS];
#pragma unroll
                    for (int k = 0; k < A_THREAD; k++) take(v[k]);
                } else {
                    for (int k = 0; thread + k * THREADS < here; k++) take(values[k * THREADS]);
                }
            }
            // The total is relative to 2^reference; from here on to exp(top).
            if (mine.top > LOWEST) mine.total *= exp2_fast(-fmaf(mine.top, LOG2E, -reference));
            mine = of_warp(mine);
            Sums* parts = partial + parity * WARPS;
            if (lane == 0) parts[warp] = mine;
            asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
            Sums all = of_warp(lane < WARPS ? parts[lane] : Sums{LOWEST, 0.0f, 0.0f});
            if (CLUSTER > 1) {
                Sums* theirs = (Sums*)((unsigned char*)other + parity * 16);
                u64* meeting = met + parity;
                if (thread == 0) {
                    expect(meeting, 12);
                    u32 there, barrier_there;
                    const u32 peer = rank ^ 1u;
                    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(theirs)), "r"(peer));
                    asm("mapa.shared::cluster.u32 %0, %1, %2;"
                        : "=r"(barrier_there)
                        : "r"(shared_address(meeting)), "r"(peer));
                    const float sent[3] = {all.top, all.total, all.plain};
#pragma unroll
                    for (int k = 0; k < 3; k++) {
                        asm volatile(
                            "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                                there + 4 * k),
                            "r"(__float_as_uint(sent[k])), "r"(barrier_there)
                            : "memory");
                    }
                }
                wait(meeting, phases >> parity & 1);
                phases ^= 1u << parity;
                // In the order of the ranks, so that both blocks find the same numbers.
                all = rank == 0 ? joined(all, *theirs) : joined(*theirs, all);
            }
            float log2_rest = log2f(all.total);
            if (!valid) {
                if (thread == 0) *wrong = label;
                log2_rest = __int_as_float(0x7fc00000);
            }
            const float log_rest = log2_rest * LN2;
            const float sum = all.top + log_rest;
            if (thread == 0 && rank == 0) {
                float result = (all.top - z) + log_rest;
                if (SMOOTH) {
                    const float even = width * ((all.top - about) + log_rest) - all.plain;
                    result = (1.0f - smoothing) * result + smoothing / width * even;
                }
                if (Z_LOSS) result += z_loss * sum * sum;
                loss[row] = result;
                lse[row] = all.top;
                lse[rows + row] = log2_rest;
            }

            // Pass 2.
            const float even = SMOOTH ? mean * (smoothing / width) : 0.0f;
            const float per_label = SMOOTH ? mean * (1.0f - smoothing) : mean;
            float per_probability = mean;
            if (Z_LOSS) per_probability += 2.0f * z_loss * mean * sum;
            const float offset = fmaf(all.top, LOG2E, log2_rest);
            // The label's own element, in which a confident row's digits cancel, without the rounding of `offset`.
            const float at_label = fmaf(z - all.top, LOG2E, -log2_rest);
            const float patch = exp2f(at_label) * per_probability - per_label - even;
            const int patched = valid ? (int)(label / 8) - begin : -1;
            auto give = [&](uint4* value, uint4 v, int vector) {
                const u32 pairs[4] = {v.x, v.y, v.z, v.w};
                u32 result[4];
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    float a = exp2_fast(fmaf(low(pairs[k]), LOG2E, -offset)) * per_probability;
                    float b = exp2_fast(fmaf(high(pairs[k]), LOG2E, -offset)) * per_probability;
                    if (SMOOTH) a -= even, b -= even;
                    result[k] = packed(a, b);
                }
                if (vector == patched) {
                    const u32 bits = packed(patch, 0.0f) & 0xffffu, which = label % 8;
#pragma unroll
                    for (int k = 0; k < 4; k++) {
                        if (which == 2 * k) result[k] = (result[k] & 0xffff0000u) | bits;
                        if (which == 2 * k + 1) result[k] = (result[k] & 0xffffu) | bits << 16;
                    }
                }
                *value = make_uint4(result[0], result[1], result[2], result[3]);
            };
            slot = first;
            for (int piece = 0; piece < pieces; piece++, slot.next()) {
                uint4* values = (uint4*)(ring + slot.index * SLOT_BYTES) + thread;
                const int here = count - piece * SLOT_VECTORS, vector = piece * SLOT_VECTORS + thread;
                if (here >= SLOT_VECTORS) {
                    uint4 v[A_THREAD];
#pragma unroll
                    for (int k = 0; k < A_THREAD; k++) v[k] = values[k * THREADS];
#pragma unroll
                    for (int k = 0; k < A_THREAD; k++) give(values + k * THREADS, v[k], vector + k * THREADS);
                } else {
                    for (int k = 0; thread + k * THREADS < here; k++) {
                        give(values + k * THREADS, values[k * THREADS], vector + k * THREADS);
                    }
                }
                // What was written through the usual path is to be seen by the copy engine.
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                __syncwarp();
                if (lane == 0) arrive(done + slot.index);
            }
            first = slot;
            parity ^= 1;
        }
    }
    // A block of a pair stays until the other has read what it was sent.
    if (CLUSTER > 1) {
        __syncwarp();
        asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    }
}
