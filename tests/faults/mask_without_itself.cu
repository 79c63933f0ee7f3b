// fault: bad-mask   mended by: the mask of the lanes that come
// launch: --grid 1 --block 32 --arg i32[32] --arg i32[32]=empty
__global__ void upper_half(const int* x, int* y) {
    int t = threadIdx.x, v = x[t];
    if (t >= 16) {
#ifdef MENDED
        v = __shfl_xor_sync(0xffff0000, v, 1);
#else
        v = __shfl_xor_sync(0x0000ffff, v, 1);  // <- the other half's mask
#endif
    }
    y[t] = v;
}
