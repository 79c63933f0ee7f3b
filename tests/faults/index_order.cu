// fault: uncoalesced warning   mended by: threadIdx.x along the rows
// launch: --grid 8,8 --block 16,16 --arg f32[128,128] --arg f32[128,128]=zeros --arg 128
__global__ void scale(const float* x, float* y, int n) {
#ifdef MENDED
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
#else
    int row = blockIdx.x * 16 + threadIdx.x, column = blockIdx.y * 16 + threadIdx.y;
#endif
    y[row * n + column] = 2 * x[row * n + column];  // <- lanes differ in row
}
