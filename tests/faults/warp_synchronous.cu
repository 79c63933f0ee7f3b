// fault: race-shared   mended by: __syncwarp()
// launch: --grid 2 --block 64 --arg i32[128] --arg i32[2]=zeros
// Written for warps whose lanes run in lockstep, which they do not since sm_70.
__global__ void reduce(const int* x, int* sums) {
    __shared__ int partial[64];
    int t = threadIdx.x;
    partial[t] = x[blockIdx.x * 64 + t];
    __syncthreads();
    if (t < 32) {
        volatile int* v = partial;
#ifdef MENDED
        for (int s = 32; s > 0; s >>= 1) {
            int other = v[t + s];
            __syncwarp();
            if (t < s) v[t] += other;
            __syncwarp();
        }
#else
        for (int s = 32; s > 0; s >>= 1) v[t] += v[t + s];  // <- lanes read what others write
#endif
        if (t == 0) sums[blockIdx.x] = v[0];
    }
}
