// fault: race-global   mended by: fences of the GPU's scope
// launch: --grid 2 --block 1 --arg i32[1]=zeros --arg i32[1]=zeros --arg i32[1]=zeros
#ifdef MENDED
#define FENCE __threadfence
#else
#define FENCE __threadfence_block
#endif
__global__ void hand_over(int* data, volatile int* ready, int* out) {
    if (blockIdx.x == 0) {
        *data = 42;  // <- write
        FENCE();
        *ready = 1;
    } else {
        while (*ready == 0) {}
        FENCE();
        *out = *data;  // <- read
    }
}
