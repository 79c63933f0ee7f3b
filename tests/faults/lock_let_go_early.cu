// fault: race-global   mended by: the barrier below
// launch: --grid 3 --block 64 --arg i32[1]=zeros --arg f32[64]=zeros
// One thread holds the lock for its block, and lets it go while others are still at work.
__global__ void add_under_lock(int* lock, float* sums) {
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        __threadfence();
    }
    __syncthreads();
    sums[63 - threadIdx.x] += 1.0f;  // <- here
#ifdef MENDED
    __syncthreads();
#endif
    if (threadIdx.x == 0) {
        __threadfence();
        atomicExch(lock, 0);
    }
}
