// fault: barrier-divergence warning   mended by: one barrier for all
// launch: --grid 1 --block 64 --arg i32[64]=zeros
__global__ void arms(int* x) {
    __shared__ int s[64];
    int t = threadIdx.x;
    if (t < 32) {
        s[t] = t;
#ifndef MENDED
        __syncthreads();  // <- half of the block
#endif
        x[t] = 2 * s[t];
    } else {
        x[t] = 1;
#ifdef MENDED
    }
    __syncthreads();
#else
        asm volatile("exit;");  // <- the others have gone
    }
#endif
}
