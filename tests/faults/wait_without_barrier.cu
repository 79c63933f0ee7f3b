// fault: race-shared   mended by: the barrier below
// launch: --grid 1 --block 64 --arg f32[256] --arg f32[256]=empty
// The wait covers the copies of the thread that waits, and no other's.
#include <cuda_pipeline.h>
__global__ void load(const float4* x, float4* y) {
    __shared__ float4 buffer[64];
    int t = threadIdx.x;
    __pipeline_memcpy_async(&buffer[t], &x[t], 16);  // <- the copy
    __pipeline_commit();
    __pipeline_wait_prior(0);
#ifdef MENDED
    __syncthreads();
#endif
    y[t] = buffer[63 - t];  // <- read
}
