// fault: tail-wave warning   mended by: a smaller tile, with which all blocks run at once
// launch: --grid 330 --block 128 --arg f32[42240] --arg f32[42240]=zeros --arg 300
#ifdef MENDED
const int TILE = 4096;
#else
const int TILE = 12032;
#endif
__global__ void smooth(const float* x, float* y, int rounds) {  // <- 108 SMs hold three blocks each
    __shared__ float tile[TILE];
    int t = threadIdx.x, i = blockIdx.x * 128 + t;
    tile[t] = x[i];
    __syncthreads();
    float sum = tile[t];
    for (int k = 0; k < rounds; k++) sum = sum * 0.5f + tile[(t + k) % 128];
    y[i] = sum;
}
