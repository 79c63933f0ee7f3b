// fault: divergence warning   mended by: whole warps for each kind of work
// launch: --grid 8 --block 128 --arg f32[1024] --arg f32[1024]=zeros
__device__ float series(float x, float step) {
    float sum = x;
    for (int k = 1; k < 40; k++) sum = sum * step + x / k;
    return sum;
}
__device__ float product(float x, float step) {
    float all = 1;
    for (int k = 1; k < 40; k++) all *= x * k - step;
    return all;
}
__global__ void both(const float* x, float* y) {
    int t = threadIdx.x;
#ifdef MENDED
    int i = t < 64 ? 2 * t : 2 * (t - 64) + 1;
#else
    int i = t;
#endif
    i += blockIdx.x * 128;
    if (i % 2 == 0)  // <- odd lanes wait, then even ones
        y[i] = series(x[i], 0.5f);
    else
        y[i] = product(x[i], 0.25f);
}
