// fault: uninitialized   mended by: writing in place of adding
// launch: --grid 1 --block 64 --arg f32[64] --arg f32[64]=empty
__global__ void add_to(const float* x, float* y) {
#ifdef MENDED
    y[threadIdx.x] = x[threadIdx.x];
#else
    y[threadIdx.x] += x[threadIdx.x];  // <- y holds nothing yet
#endif
}
