// Calls through pointers, and memory that threads ask for.
struct Shape {
    float a;
    __device__ Shape(float a) : a(a) {}
    __device__ virtual ~Shape() {}
    __device__ virtual float area() const = 0;
    __device__ virtual int corners(int more) const { return more; }
};
struct Square : Shape {
    __device__ Square(float a) : Shape(a) {}
    __device__ float area() const override { return a * a; }
    __device__ int corners(int more) const override { return 4 + more; }
};
struct Disc : Shape {
    __device__ Disc(float a) : Shape(a) {}
    __device__ float area() const override { return 3 * a * a; }
};

extern "C" __global__ void make_shapes(Shape** shapes, const float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) shapes[i] = i % 3 ? (Shape*)new Square(a[i]) : new Disc(a[i]);
}
extern "C" __global__ void ask_shapes(Shape** shapes, float* areas, int* corners, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    areas[i] = shapes[i]->area();
    corners[i] = shapes[i]->corners(i);
}
extern "C" __global__ void delete_shapes(Shape** shapes, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) delete shapes[i];
}

typedef int (*Function)(int, int);
__device__ int add(int a, int b) { return a + b; }
__device__ int multiply(int a, int b) { return a * b; }
__device__ int power(int a, int b) { int p = 1; while (b-- > 0) p *= a; return p; }
__device__ Function table[3] = {add, multiply, power};

extern "C" __global__ void by_table(const int* which, const int* a, int* out) {
    int t = threadIdx.x;
    out[t] = table[which[t]](a[t], t % 7);
}
extern "C" __global__ void to_nowhere(const unsigned long long* pointers, int* out) {
    out[threadIdx.x] = ((Function)pointers[threadIdx.x])(1, 2);
}

extern "C" __global__ void scratch_arrays(int* out, int n) {
    int* own = (int*)malloc(n * sizeof(int));
    if (own == nullptr) { out[threadIdx.x] = -1; return; }
    for (int i = 0; i < n; i++) own[i] = threadIdx.x * i;
    __syncthreads();
    int sum = 0;
    for (int i = 0; i < n; i++) sum += own[i];
    out[threadIdx.x] = sum;
    free(own);
}
extern "C" __global__ void frees_twice(int* out) {
    int* own = (int*)malloc(4);
    free(nullptr);
    free(own);
    if (threadIdx.x == 3) free(own + (out[0] == 0));
}
