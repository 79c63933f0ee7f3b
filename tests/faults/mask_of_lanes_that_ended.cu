// fault: bad-mask warning   mended by: the mask of the lanes that are left
// launch: --grid 1 --block 32 --arg i32[32]
__global__ void halve(int* x) {
    int t = threadIdx.x, v = x[t];
    if (t >= 16) return;
#ifdef MENDED
    v += __shfl_xor_sync(0x0000ffff, v, 1);
#else
    v += __shfl_xor_sync(0xffffffff, v, 1);  // <- half of them have gone
#endif
    x[t] = v;
}
