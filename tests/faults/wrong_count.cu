// fault: deadlock   mended by: the number of threads that come
// launch: --grid 1 --block 64 --arg i32[64]=zeros
__global__ void half_waits(int* x) {
    x[threadIdx.x] = 1;
    if (threadIdx.x < 32) {
#ifdef MENDED
        asm volatile("bar.sync 1, 32;" ::: "memory");
#else
        asm volatile("bar.sync 1, 64;" ::: "memory");  // <- the others never come
#endif
    }
}
