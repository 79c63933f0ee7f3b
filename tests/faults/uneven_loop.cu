// fault: divergence warning   mended by: work sorted by its length
// launch: --grid 4 --block 128 --arg f32[512] --arg f32[512]=zeros
__global__ void iterate(const float* x, float* y) {
    int t = threadIdx.x;
#ifdef MENDED
    int i = blockIdx.x * 128 + (t < 64 ? 2 * t : 2 * (t - 64) + 1);
#else
    int i = blockIdx.x * 128 + t;
#endif
    float v = x[i];
    int rounds = i % 2 == 0 ? 200 : 5;
    for (int k = 0; k < rounds; k++) v = v * v - 0.5f;  // <- every other lane waits
    y[i] = v;
}
