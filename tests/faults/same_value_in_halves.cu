// fault: race-shared note   each half of a word is written by many threads, all with the same value
// launch: --grid 1 --block 64 --arg u16[2] --arg u16[64]
__global__ void spread(const unsigned short* x, unsigned short* y) {
    __shared__ unsigned short pair[2];
#ifdef MENDED
    if (threadIdx.x < 2)
#endif
    pair[threadIdx.x & 1] = x[threadIdx.x & 1];  // <-
    __syncthreads();
    y[threadIdx.x] = pair[threadIdx.x & 1];
}
