// fault: race-shared   mended by: __syncwarp()
// launch: --grid 1 --block 32 --arg i32[32] --arg i32[32]=empty
__global__ void turn(const int* x, int* y) {
    __shared__ int s[32];
    int t = threadIdx.x;
    s[t] = x[t];  // <- write
#ifdef MENDED
    __syncwarp();
#endif
    y[t] = s[31 - t];  // <- read
}
