// fault: uninitialized   mended by: writing all of it
// launch: --grid 2 --block 48 --arg f32[96] --arg f32[96]=empty
__global__ void pad(const float* x, float* y) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * 48 + t];
#ifdef MENDED
    if (t < 16) s[48 + t] = 0;
#endif
    __syncthreads();
    y[blockIdx.x * 48 + t] = s[63 - t];  // <- beyond what was written
}
