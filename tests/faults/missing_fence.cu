// fault: race-global   mended by: the fences below
// launch: --grid 2 --block 1 --arg i32[1]=zeros --arg i32[1]=zeros --arg i32[1]=zeros
__global__ void hand_over(int* data, volatile int* ready, int* out) {
    if (blockIdx.x == 0) {
        *data = 42;  // <- write
#ifdef MENDED
        __threadfence();
#endif
        *ready = 1;
    } else {
        while (*ready == 0) {}
#ifdef MENDED
        __threadfence();
#endif
        *out = *data;  // <- read
    }
}
