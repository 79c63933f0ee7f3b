// Cooperative groups: groups of many warps, and the whole grid.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

namespace cg = cooperative_groups;

// Every block writes the sum of its share, the grid waits, every block adds up all sums: as often as asked.
extern "C" __global__ void grid_sums(const int* x, int n, int* sums, int* totals, int rounds) {
    cg::grid_group grid = cg::this_grid();
    cg::thread_block block = cg::this_thread_block();
    __shared__ int sum;
    for (int round = 0; round < rounds; round++) {
        if (threadIdx.x == 0) sum = 0;
        block.sync();
        int own = 0;
        for (unsigned long long i = grid.thread_rank(); i < n; i += grid.num_threads()) own += x[i] * (round + 1);
        atomicAdd(&sum, own);
        block.sync();
        if (threadIdx.x == 0) sums[blockIdx.x] = sum;
        grid.sync();
        if (threadIdx.x == 0) {
            int total = 0;
            for (int b = 0; b < gridDim.x; b++) total += sums[b];
            totals[round * gridDim.x + blockIdx.x] = total;
        }
        grid.sync();
    }
}

extern "C" __global__ void grid_ranks(unsigned long long* out) {
    cg::grid_group grid = cg::this_grid();
    grid.sync();
    unsigned long long rank = grid.thread_rank();
    out[3 * rank] = grid.num_blocks();
    out[3 * rank + 1] = grid.block_rank();
    out[3 * rank + 2] = grid.num_threads();
}

// One part of the grid does not come.
extern "C" __global__ void grid_waits_in_vain() {
    if (blockIdx.x) cg::this_grid().sync();
}

// The barrier that people wrote before there was grid.sync().
extern "C" __global__ void own_grid_barrier(int* arrived) {
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1);
        while (*(volatile int*)arrived < gridDim.x) {}
    }
    __syncthreads();
}

template <int Size>
__device__ void tile(const int* x, int* out) {
    __shared__ cg::block_tile_memory<512> scratch;
    auto block = cg::this_thread_block(scratch);
    auto tile = cg::tiled_partition<Size>(block);
    int i = block.thread_rank(), n = block.num_threads(), v = x[blockIdx.x * n + i];
    out += 8 * n * blockIdx.x;
    out[i] = cg::reduce(tile, v, cg::plus<int>());
    out[n + i] = cg::reduce(tile, v, cg::greater<int>());
    out[2 * n + i] = cg::inclusive_scan(tile, v);
    out[3 * n + i] = cg::exclusive_scan(tile, v, cg::bit_xor<int>());
    out[4 * n + i] = tile.shfl(v, 7);
    out[5 * n + i] = tile.any(v == 3) + 2 * tile.all(v >= -49);
    out[6 * n + i] = tile.thread_rank() + 1000 * tile.meta_group_rank();
    __shared__ int last[512];
    last[i] = v;
    tile.sync();
    out[7 * n + i] = last[i / Size * Size + (i + Size / 2) % Size];
}
extern "C" __global__ void tiles_of_16(const int* x, int* out) { tile<16>(x, out); }
extern "C" __global__ void tiles_of_64(const int* x, int* out) { tile<64>(x, out); }
extern "C" __global__ void tiles_of_256(const int* x, int* out) { tile<256>(x, out); }

// A tile's barrier is a word in shared memory: one tile waits for itself only.
extern "C" __global__ void one_tile_of_two(int* out) {
    auto tile = cg::tiled_partition<64>(cg::this_thread_block());
    if (tile.meta_group_rank() == 1) {
        out[tile.thread_rank()] = cg::reduce(tile, (int)tile.thread_rank(), cg::plus<int>());
    }
}

extern "C" __global__ void copies(const float* x, float* out, int n) {
    extern __shared__ float buffer[];
    auto block = cg::this_thread_block();
    for (int at = 0; at < n; at += blockDim.x) {
        int count = min(blockDim.x, n - at);
        cg::memcpy_async(block, buffer, x + at, sizeof(float) * count);
        cg::wait(block);
        if (threadIdx.x < count) out[at + threadIdx.x] = 2 * buffer[count - 1 - threadIdx.x];
        block.sync();
    }
}

extern "C" __global__ void smem_registers(unsigned* out) {
    extern __shared__ char dynamic[];
    __shared__ int own[10];
    own[threadIdx.x] = threadIdx.x;
    unsigned begin, end, cap, zero, one, total;
    asm("mov.u32 %0, %%reserved_smem_offset_begin;" : "=r"(begin));
    asm("mov.u32 %0, %%reserved_smem_offset_end;" : "=r"(end));
    asm("mov.u32 %0, %%reserved_smem_offset_cap;" : "=r"(cap));
    asm("mov.u32 %0, %%reserved_smem_offset_0;" : "=r"(zero));
    asm("mov.u32 %0, %%reserved_smem_offset_1;" : "=r"(one));
    asm("mov.u32 %0, %%total_smem_size;" : "=r"(total));
    unsigned words[] = {begin, end, cap, zero, one, total, (unsigned)__cvta_generic_to_shared(own),
                        (unsigned)__cvta_generic_to_shared(dynamic)};
    for (int i = 0; i < 8; i++) out[i] = words[i];
}
