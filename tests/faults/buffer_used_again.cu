// fault: race-shared   mended by: the barrier below
// launch: --grid 2 --block 128 --arg f32[512] --arg f32[4]=zeros
// Two sums, one after the other, over the same buffer: a fast warp writes the second round's while others still read.
__global__ void two_sums(const float* x, float* sums) {
    __shared__ float warp_sums[4];
    int t = threadIdx.x;
    for (int round = 0; round < 2; round++) {
        float sum = x[round * 256 + blockIdx.x * 128 + t];
        for (int s = 16; s > 0; s >>= 1) sum += __shfl_down_sync(0xffffffff, sum, s);
#ifdef MENDED
        __syncthreads();
#endif
        if (t % 32 == 0) warp_sums[t / 32] = sum;  // <- write of the next round
        __syncthreads();
        if (t == 0) {
            float total = 0;
            for (int w = 0; w < 4; w++) total += warp_sums[w];  // <- read
            sums[round * 2 + blockIdx.x] = total;
        }
    }
}
