// fault: barrier-divergence   mended by: one barrier behind both arms
// launch: --grid 1 --block 64 --arg i32[64]=zeros
__global__ void arms(int* x) {
    int t = threadIdx.x;
    if (t < 32) {
        x[t] = 1;
#ifndef MENDED
        __syncthreads();  // <- one half here
#endif
        x[t] += 5;
    } else {
        x[t] = 2;
#ifndef MENDED
        __syncthreads();  // <- the other there
#endif
        x[t] *= 3;
    }
#ifdef MENDED
    __syncthreads();
#endif
}
