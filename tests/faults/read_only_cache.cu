// fault: nc-write   mended by: an ordinary load
// launch: --grid 1 --block 64 --arg f32[64]
__global__ void doubled(float* x) {
    int t = threadIdx.x;
#ifdef MENDED
    float v = x[t];
#else
    float v = __ldg(&x[t]);  // <- read
#endif
    x[t] = 2 * v;  // <- write
}
