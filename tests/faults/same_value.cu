// fault: race-global note   mended by: one thread that writes
// launch: --grid 3 --block 64 --arg i32[1]=zeros
__global__ void flag(int* found) {
#ifdef MENDED
    if (threadIdx.x + blockIdx.x == 0)
#endif
    *found = 1;  // <- every thread, the same
}
