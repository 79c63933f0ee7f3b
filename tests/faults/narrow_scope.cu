// fault: race-global   mended by: the scope of the GPU
// launch: --grid 4 --block 32 --arg i32[1]=zeros
__global__ void count(int* total) {
#ifdef MENDED
    atomicAdd(total, 1);
#else
    atomicAdd_block(total, 1);  // <- holds one block
#endif
}
