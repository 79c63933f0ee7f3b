// fault: race-shared   mended by: the barrier below
// launch: --grid 2 --block 32,8 --arg f32[512] --arg f32[512]=empty
// A tile is stored by rows and loaded by columns.
__global__ void convert(const float* x, float* y) {
    __shared__ float tile[8][36];
    int tx = threadIdx.x, ty = threadIdx.y, t = ty * 32 + tx;
    tile[ty][tx] = x[blockIdx.x * 256 + t];  // <- write
#ifdef MENDED
    __syncthreads();
#endif
    y[blockIdx.x * 256 + t] = tile[t % 8][t / 8];  // <- read
}
