// fault: bank-conflict warning   mended by: a column more, so that rows start in other banks
// launch: --grid 4,4 --block 32,8 --arg f32[128,128] --arg f32[128,128]=zeros --arg 128
#ifdef MENDED
const int ROW = 33;
#else
const int ROW = 32;
#endif
__global__ void transpose(const float* a, float* b, int n) {
    __shared__ float tile[32][ROW];
    int x = threadIdx.x, left = blockIdx.x * 32, top = blockIdx.y * 32;
    for (int y = threadIdx.y; y < 32; y += 8) tile[y][x] = a[(top + y) * n + left + x];
    __syncthreads();
    for (int y = threadIdx.y; y < 32; y += 8) b[(left + y) * n + top + x] = tile[x][y];  // <- a column
}
