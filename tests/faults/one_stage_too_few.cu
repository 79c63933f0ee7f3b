// fault: race-shared   mended by: waiting for the tile that is read
// launch: --grid 1 --block 64 --arg f32[1024] --arg f32[1024]=empty --arg 4
#include <cuda_pipeline.h>
__global__ void stream(const float4* x, float4* y, int tiles) {
    __shared__ float4 buffer[2][64];
    int t = threadIdx.x;
    __pipeline_memcpy_async(&buffer[0][t], &x[t], 16);  // <- the first copy
    __pipeline_commit();
    for (int i = 0; i < tiles; i++) {
        if (i + 1 < tiles) __pipeline_memcpy_async(&buffer[(i + 1) % 2][t], &x[(i + 1) * 64 + t], 16);  // <- the copy
        __pipeline_commit();
#ifdef MENDED
        __pipeline_wait_prior(1);
#else
        __pipeline_wait_prior(2);
#endif
        __syncthreads();
        y[i * 64 + t] = buffer[i % 2][63 - t];  // <- read
        __syncthreads();
    }
}
