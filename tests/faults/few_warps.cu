// fault: occupancy warning   mended by: a smaller tile
// launch: --grid 8 --block 64 --arg f32[96256] --arg f32[96256]=zeros
#ifdef MENDED
const int TILE = 1504;
#else
const int TILE = 12032;
#endif
__global__ void reverse(const float* x, float* y) {  // <- three blocks of two warps on an SM
    __shared__ float tile[TILE];
    for (int first = blockIdx.x * 12032; first < (blockIdx.x + 1) * 12032; first += TILE) {
        for (int i = threadIdx.x; i < TILE; i += 64) tile[i] = x[first + i];
        __syncthreads();
        for (int i = threadIdx.x; i < TILE; i += 64) y[first + i] = tile[TILE - 1 - i];
        __syncthreads();
    }
}
