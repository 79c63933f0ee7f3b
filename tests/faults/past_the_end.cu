// fault: out-of-bounds   mended by: the guard
// launch: --grid 2 --block 64 --arg f32[100] --arg 100
__global__ void scale(float* x, int n) {
    int i = blockIdx.x * 64 + threadIdx.x;
#ifdef MENDED
    if (i < n)
#endif
    x[i] *= 2;  // <- here
}
