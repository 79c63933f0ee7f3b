// fault: spill warning   mended by: registers for the tile
// launch: --grid 2 --block 256 --arg f32[64,512] --arg f32[64,512] --arg f32[64,512]=zeros --arg 512
// 64 sums a thread and 16 factors do not fit into the 64 registers that four blocks of 256 threads leave.
#ifdef MENDED
#define BLOCKS 2
#else
#define BLOCKS 4
#endif
__global__ void __launch_bounds__(256, BLOCKS) tile_products(const float* a, const float* b, float* c, int n) {  // <- the kernel
    int t = blockIdx.x * 256 + threadIdx.x;
    float sums[8][8] = {};
    for (int k = 0; k < 56; k++) {
        float left[8], right[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            left[i] = a[(k + i) * n + t];
            right[i] = b[(k + i) * n + t];
        }
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int j = 0; j < 8; j++) sums[i][j] += left[i] * right[j];
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) c[(i * 8 + j) * n + t] = sums[i][j];
}
