// Ways of a warp to part: what benchmarks/counters.py runs on a GPU. Volatile memory keeps ptxas from turning the arms
// into predicates or one arm into the other's. Made into branches.ptx by
//   nvcc -ptx -arch=sm_80 -lineinfo -std=c++17 branches.cu
extern "C" __global__ void loop_by_lane(volatile int* x, int first, int step) {
    int t = threadIdx.x;
    for (int k = 0; k < first + step * (t % 32); k++) x[t] += k;
}
extern "C" __global__ void loop_by_hash(volatile int* x, int most) {
    unsigned t = threadIdx.x, h = (t * 2654435761u) >> 16;
    for (unsigned k = 0; k < h % most; k++) x[t] += k;
}
extern "C" __global__ void early_return(volatile int* x, int every) {
    int t = threadIdx.x;
    if (t % every) return;
    for (int k = 0; k < 20; k++) x[t] += k;
}
extern "C" __global__ void early_return_of_a_tail(volatile int* x, int n) {
    int t = threadIdx.x;
    if (t >= n) return;
    for (int k = 0; k < 20; k++) x[t] += k;
}
extern "C" __global__ void two_arms(volatile int* x, int bit) {
    int t = threadIdx.x;
    if (t & bit) {
        for (int k = 0; k < 20; k++) x[t] += k * 3;
    } else {
        for (int k = 0; k < 20; k++) x[t] ^= k + 5;
    }
}
extern "C" __global__ void four_arms(volatile int* x, int spread) {
    int t = threadIdx.x;
    switch (t / spread % 4) {
        case 0: for (int k = 0; k < 10; k++) x[t] += k; break;
        case 1: for (int k = 0; k < 20; k++) x[t] ^= k; break;
        case 2: for (int k = 0; k < 30; k++) x[t] |= k; break;
        default: for (int k = 0; k < 40; k++) x[t] -= k; break;
    }
}
extern "C" __global__ void nested(volatile int* x, int outer, int inner) {
    int t = threadIdx.x;
    if (t % 32 < outer) {
        for (int k = 0; k < 10; k++) x[t] += k;
        if (t % 32 < inner) {
            for (int k = 0; k < 10; k++) x[t] ^= k;
        }
        for (int k = 0; k < 10; k++) x[t] -= k;
    }
}
extern "C" __global__ void leaves_a_loop(volatile int* x, int every) {
    int t = threadIdx.x;
    for (int k = 0; k < 32; k++) {
        x[t] += k;
        if (k % 32 == t % 32 / every * every) break;
    }
}
extern "C" __global__ void predicated(const int* a, int* x, int bound) {
    int t = threadIdx.x;
    int v = a[t];
    if (v < bound) v = v * 3 + 1;
    x[t] = v;
}
extern "C" __global__ void collatz_steps(volatile int* x) {
    int t = threadIdx.x;
    unsigned n = t + 1;
    int steps = 0;
    while (n != 1) {
        if (n & 1) n = 3 * n + 1; else n /= 2;
        steps++;
        x[t] = steps;
    }
}
