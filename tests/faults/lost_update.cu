// fault: race-global   mended by: atomicAdd
// launch: --grid 4 --block 64 --arg i32[1]=zeros
__global__ void count(int* total) {
#ifdef MENDED
    atomicAdd(total, 1);
#else
    *total += 1;  // <- read by one thread, written by another
#endif
}
