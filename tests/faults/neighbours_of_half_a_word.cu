// fault: none   two blocks write the two halves of each word
// launch: --grid 2 --block 64 --arg u16[128]=empty
__global__ void halves(unsigned short* y) { y[2 * threadIdx.x + blockIdx.x] = threadIdx.x; }
