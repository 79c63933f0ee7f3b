// fault: misaligned   mended by: an offset of whole elements
// launch: --grid 1 --block 8 --arg u8[64] --arg i32[8]=empty
__global__ void words(const char* x, int* y) {
#ifdef MENDED
    y[threadIdx.x] = *(const int*)(x + 4 * threadIdx.x);
#else
    y[threadIdx.x] = *(const int*)(x + 4 * threadIdx.x + 2);  // <- half a word on
#endif
}
