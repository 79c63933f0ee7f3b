// fault: uncoalesced warning   mended by: a warp for each row
// launch: --grid 8 --block 64 --arg f32[512,96] --arg f32[512]=zeros --arg 96
__global__ void sum_rows(const float* x, float* sums, int n) {
    int t = threadIdx.x;
#ifdef MENDED
    for (int row = blockIdx.x * 64 + t / 32; row < blockIdx.x * 64 + 64; row += 2) {
        float sum = 0;
        for (int i = t % 32; i < n; i += 32) sum += x[row * n + i];
        for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_down_sync(0xffffffff, sum, apart);
        if (t % 32 == 0) sums[row] = sum;
    }
#else
    int row = blockIdx.x * 64 + t;
    float sum = 0;
    for (int i = 0; i < n; i++) sum += x[row * n + i];  // <- each lane in another row
    sums[row] = sum;
#endif
}
