// The kernels that everybody writes first, and the series of reductions of M. Harris's slides, written anew.
extern "C" __global__ void doubling(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = 2.0f * x[i];
}

extern "C" __global__ void naive_matmul(const float* a, const float* b, float* c, int n) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= n || column >= n) return;
    float sum = 0.f;
    for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = sum;
}

#define TILE 32
extern "C" __global__ void tiled_matmul(const float* a, const float* b, float* c, int n) {
    __shared__ float as[TILE][TILE], bs[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y, column = blockIdx.x * TILE + tx, row = blockIdx.y * TILE + ty;
    float sum = 0.f;
    for (int t = 0; t < n / TILE; t++) {
        as[ty][tx] = a[row * n + t * TILE + tx];
        bs[ty][tx] = b[(t * TILE + ty) * n + column];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE; k++) sum += as[ty][k] * bs[k][tx];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

// 128 x 128 of c a block of 256 threads, 8 x 8 a thread.
extern "C" __global__ void register_tiled_matmul(const float* a, const float* b, float* c, int n) {
    __shared__ float as[16][128], bs[16][128];
    int t = threadIdx.x, tx = t & 15, ty = t >> 4;
    a += blockIdx.y * 128 * n;
    b += blockIdx.x * 128;
    float sums[8][8] = {};
    for (int k0 = 0; k0 < n; k0 += 16) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int e = t + i * 256;
            as[e & 15][e >> 4] = a[(e >> 4) * n + k0 + (e & 15)];
            bs[e >> 7][e & 127] = b[(k0 + (e >> 7)) * n + (e & 127)];
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 16; k++) {
            float x[8], y[8];
#pragma unroll
            for (int i = 0; i < 8; i++) { x[i] = as[k][ty * 8 + i]; y[i] = bs[k][tx + 16 * i]; }
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int j = 0; j < 8; j++) sums[i][j] += x[i] * y[j];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) c[(blockIdx.y * 128 + ty * 8 + i) * n + blockIdx.x * 128 + tx + 16 * j] = sums[i][j];
}

extern "C" __global__ void naive_transpose(const float* a, float* b, int n) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    if (x < n && y < n) b[x * n + y] = a[y * n + x];
}

template <int PITCH> __device__ void transpose(const float* a, float* b, int n) {
    __shared__ float tile[32][PITCH];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    if (x < n && y < n) tile[threadIdx.y][threadIdx.x] = a[y * n + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    if (x < n && y < n) b[y * n + x] = tile[threadIdx.x][threadIdx.y];
}
extern "C" __global__ void conflicting_transpose(const float* a, float* b, int n) { transpose<32>(a, b, n); }
extern "C" __global__ void padded_transpose(const float* a, float* b, int n) { transpose<33>(a, b, n); }

// The reductions: each adds up a block's numbers.
extern __shared__ int partial[];
extern "C" __global__ void reduce_interleaved(const int* in, int* out, int n) {
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    partial[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int s = 1; s < blockDim.x; s *= 2) {
        if (t % (2 * s) == 0) partial[t] += partial[t + s];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = partial[0];
}
extern "C" __global__ void reduce_strided(const int* in, int* out, int n) {
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    partial[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int s = 1; s < blockDim.x; s *= 2) {
        int at = 2 * s * t;
        if (at < blockDim.x) partial[at] += partial[at + s];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = partial[0];
}
extern "C" __global__ void reduce_sequential(const int* in, int* out, int n) {
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    partial[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (t < s) partial[t] += partial[t + s];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = partial[0];
}
extern "C" __global__ void reduce_last_warp(const int* in, int* out, int n) {
    int t = threadIdx.x, i = blockIdx.x * blockDim.x * 2 + t;
    partial[t] = (i < n ? in[i] : 0) + (i + blockDim.x < n ? in[i + blockDim.x] : 0);
    __syncthreads();
    for (int s = blockDim.x / 2; s > 32; s >>= 1) {
        if (t < s) partial[t] += partial[t + s];
        __syncthreads();
    }
    if (t < 32) {
        volatile int* v = partial;
        for (int s = 32; s > 0; s >>= 1) {
            int other = v[t + s];
            __syncwarp();
            v[t] += other;
            __syncwarp();
        }
    }
    if (t == 0) out[blockIdx.x] = partial[0];
}
extern "C" __global__ void reduce_shuffle(const int* in, int* out, int n) {
    __shared__ int sums[32];
    int t = threadIdx.x, sum = 0;
    for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    for (int s = 16; s > 0; s >>= 1) sum += __shfl_down_sync(0xffffffff, sum, s);
    if (t % 32 == 0) sums[t / 32] = sum;
    __syncthreads();
    if (t < 32) {
        sum = t < blockDim.x / 32 ? sums[t] : 0;
        for (int s = 16; s > 0; s >>= 1) sum += __shfl_down_sync(0xffffffff, sum, s);
        if (t == 0) atomicAdd(out, sum);
    }
}

extern "C" __global__ void histogram(const unsigned char* in, unsigned* out, int n) {
    __shared__ unsigned bins[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) bins[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[in[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&out[i], bins[i]);
}

// Inclusive scan with decoupled look-back: a block waits for the sums of the blocks before it.
extern "C" __global__ void look_back_scan(const int* in, int* out, volatile int* sums, volatile int* ready, int n) {
    __shared__ int values[256];
    __shared__ int before;
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    values[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int s = 1; s < 256; s *= 2) {
        int other = t >= s ? values[t - s] : 0;
        __syncthreads();
        values[t] += other;
        __syncthreads();
    }
    if (t == 0) {
        int sum = 0;
        if (blockIdx.x > 0) {
            while (ready[blockIdx.x - 1] == 0) {}
            __threadfence();
            sum = sums[blockIdx.x - 1];
        }
        sums[blockIdx.x] = sum + values[255];
        __threadfence();
        ready[blockIdx.x] = 1;
        before = sum;
    }
    __syncthreads();
    if (i < n) out[i] = values[t] + before;
}

// Blocks wait for blocks with greater numbers: nothing moves on unless later blocks are started.
extern "C" __global__ void backwards_wait(volatile int* ready, int* order) {
    if (blockIdx.x + 1 < gridDim.x) while (ready[blockIdx.x + 1] == 0) {}
    order[blockIdx.x] = atomicAdd(&order[gridDim.x], 1);
    __threadfence();
    ready[blockIdx.x] = 1;
}

// A lock that every thread takes, lanes of one warp too.
extern "C" __global__ void spin_lock(int* lock, int* count) {
    while (atomicCAS(lock, 0, 1) != 0) {}
    __threadfence();
    *(volatile int*)count = *(volatile int*)count + 1;
    __threadfence();
    atomicExch(lock, 0);
}

extern "C" __global__ void grid_barrier(int* arrived, const int* in, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i] + 1;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1);
        while (*(volatile int*)arrived < gridDim.x) {}
        __threadfence();
    }
    __syncthreads();
    int other = ((volatile int*)out)[n - 1 - i];
    __syncthreads();
    out[n + i] = other;
}

extern "C" __global__ void collatz(const int* in, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int v = in[i], steps = 0;
    while (v != 1) {
        if (v & 1) v = 3 * v + 1; else v = v >> 1;
        steps++;
    }
    out[i] = steps;
}

extern "C" __global__ void strided_gather(const float* in, float* out, int n, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.f;
    for (int k = 0; k < 64; k++) sum += in[((long long)i * stride + k * 97) % n];
    out[i] = sum;
}
