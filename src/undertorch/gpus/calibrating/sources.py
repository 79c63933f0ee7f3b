"""The kernels of the probes, in CUDA C++. Each source is compiled by itself, so that one that fails takes none along.

A result is always used (a store that never happens, as the compiler cannot know), so that no load is dropped. Counts
are whole blocks, so that no thread has to ask whether its element exists.
"""

from undertorch.gpus.calibrating.probes import (
    GLOBAL_BLOCK,
    L2_BLOCK,
    L2_CHUNK,
    SHARED_BLOCK,
    SHARED_LOADS,
    UNROLLED,
    VECTOR,
)

NEVER = "0x9e3779b9u"
"""Two words that the buffers do not hold side by side but by a chance of 2⁻⁶⁴ a thread."""

SINK = f"if (sum.x == {NEVER} && sum.y == {NEVER}) written[0] = sum;"

ADD = """
__device__ __forceinline__ void take(uint4& sum, const uint4& read) {
    sum.x ^= read.x; sum.y ^= read.y; sum.z ^= read.z; sum.w ^= read.w;
}
"""


def _unrolled(kernel: str, body: str) -> str:
    """The kernel for each number of loads a thread has under way; its block's elements lie side by side."""
    return "\n".join(
        f"""
extern "C" __global__ void __launch_bounds__({GLOBAL_BLOCK}) {kernel}_{loads}(uint4* __restrict__ written,
                                                                    const uint4* __restrict__ read) {{
    const unsigned long long first = (unsigned long long)blockIdx.x * {GLOBAL_BLOCK * loads} + threadIdx.x;
    {body.replace("LOADS", str(loads)).replace("STEP", str(GLOBAL_BLOCK))}
}}"""
        for loads in UNROLLED
    )


COPY = _unrolled(
    "copy",
    """uint4 held[LOADS];
    #pragma unroll
    for (int i = 0; i < LOADS; ++i) held[i] = read[first + i * STEP];
    #pragma unroll
    for (int i = 0; i < LOADS; ++i) written[first + i * STEP] = held[i];""",
)

READ = ADD + _unrolled(
    "read",
    f"""uint4 held[LOADS], sum = make_uint4(0, 0, 0, 0);
    #pragma unroll
    for (int i = 0; i < LOADS; ++i) held[i] = read[first + i * STEP];
    #pragma unroll
    for (int i = 0; i < LOADS; ++i) take(sum, held[i]);
    {SINK}""",
)

WRITE = _unrolled(
    "write",
    """#pragma unroll
    for (int i = 0; i < LOADS; ++i) written[first + i * STEP] = make_uint4(1, 2, 3, 4);""",
)

L2 = f"""{ADD}
// A block reads chunks that are its own, again and again, and no other block does: where SMs ask for the same line at
// about the same time, they are served with one read of the L2 (Nsight Compute's documentation: the L2 request
// coalescer), and more arrives than the L2 gave. __ldcg keeps what it reads out of the L1.
extern "C" __global__ void l2_read(uint4* written, const uint4* __restrict__ set, unsigned long long chunks,
                                   unsigned long long passes) {{
    uint4 sum = make_uint4(0, 0, 0, 0);
    const uint4* own = set + blockIdx.x * chunks * {L2_CHUNK // VECTOR} + threadIdx.x;
    unsigned chunk = 0;
    for (unsigned pass = 0; pass < (unsigned)passes; ++pass) {{
        const uint4* from = own + (unsigned long long)chunk * {L2_CHUNK // VECTOR};
        uint4 held[{L2_CHUNK // VECTOR // L2_BLOCK}];
        #pragma unroll
        for (int i = 0; i < {L2_CHUNK // VECTOR // L2_BLOCK}; ++i) held[i] = __ldcg(from + i * {L2_BLOCK});
        #pragma unroll
        for (int i = 0; i < {L2_CHUNK // VECTOR // L2_BLOCK}; ++i) take(sum, held[i]);
        chunk = chunk + 1 == (unsigned)chunks ? 0 : chunk + 1;
    }}
    {SINK}
}}
"""

SHARED = f"""{ADD}
// Volatile: what lies in shared memory does not change between passes, and a compiler that saw that would read it once.
extern "C" __global__ void shared_read(uint4* written, unsigned long long passes) {{
    __shared__ uint4 held[{SHARED_BLOCK * SHARED_LOADS}];
    for (int i = 0; i < {SHARED_LOADS}; ++i) {{
        held[threadIdx.x + i * {SHARED_BLOCK}] = make_uint4(threadIdx.x, i, 0, 0);
    }}
    __syncthreads();
    const unsigned address = (unsigned)__cvta_generic_to_shared(held + threadIdx.x);
    uint4 sum = make_uint4(0, 0, 0, 0);
    for (unsigned pass = 0; pass < (unsigned)passes; ++pass) {{
        #pragma unroll
        for (int i = 0; i < {SHARED_LOADS}; ++i) {{
            uint4 one;
            asm volatile("ld.volatile.shared.v4.u32 {{%0, %1, %2, %3}}, [%4];"
                         : "=r"(one.x), "=r"(one.y), "=r"(one.z), "=r"(one.w)
                         : "r"(address + i * {SHARED_BLOCK * VECTOR}));
            take(sum, one);
        }}
    }}
    {SINK}
}}
"""

EMPTY = 'extern "C" __global__ void empty() {}\n'

SPIN = """
extern "C" __global__ void spin(unsigned long long clocks) {
    const long long begin = clock64();
    while ((unsigned long long)(clock64() - begin) < clocks) {}
}
"""

SOURCES = {
    "copy": COPY,
    "read": READ,
    "write": WRITE,
    "l2": L2,
    "shared": SHARED,
    "empty": EMPTY,
    "spin": SPIN,
}
