// fault: uninitialized   mended by: a value for every element
// launch: --grid 2 --block 64 --arg f32[1024] --arg i32[128] --arg f32[128]=zeros
__global__ void pick(const float* x, const int* which, float* y) {
    int i = blockIdx.x * 64 + threadIdx.x;
#ifdef MENDED
    float own[8] = {};
#else
    float own[8];
#endif
    for (int k = 0; k < 7; k++) own[k] = x[k * 128 + i];
    y[i] = own[which[i] % 8];  // <- the last has no value
}
