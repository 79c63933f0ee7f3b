// fault: bank-conflict warning   mended by: partners that are far apart, lanes that are neighbours
// launch: --grid 8 --block 256 --arg i32[2048] --arg i32[8]=zeros
__global__ void sum(const int* x, int* sums) {
    __shared__ int partial[256];
    int t = threadIdx.x;
    partial[t] = x[blockIdx.x * 256 + t];
    __syncthreads();
#ifdef MENDED
    for (int apart = 128; apart > 0; apart /= 2) {
        if (t < apart) partial[t] += partial[t + apart];
        __syncthreads();
    }
#else
    for (int apart = 1; apart < 256; apart *= 2) {
        int i = 2 * apart * t;
        if (i < 256) partial[i] += partial[i + apart];  // <- neighbours are 2 * apart apart
        __syncthreads();
    }
#endif
    if (t == 0) sums[blockIdx.x] = partial[0];
}
