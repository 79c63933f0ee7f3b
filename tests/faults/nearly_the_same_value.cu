// fault: race-global   mended by: one thread that writes
// launch: --grid 2 --block 32 --arg f32[64]=ones --arg f32[1]=zeros
__global__ void last_bits(const float* x, float* y) {
#ifdef MENDED
    if (threadIdx.x + blockIdx.x == 0)
#endif
    y[0] = x[threadIdx.x] + threadIdx.x * 1e-7f;  // <- all but the last bits are the same
}
