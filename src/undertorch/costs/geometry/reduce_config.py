"""Kernels of reductions: ATen/native/cuda/Reduce.cuh (setReduceConfig, gpu_reduce_kernel)."""

from dataclasses import dataclass

from undertorch.costs.geometry.tensor_iterator import TensorIterator, in_32_bits
from undertorch.records import DTYPE_BYTES, Dim3, Gpu

STATIC_SHARED_BYTES = 16
"""The flag `is_last_block_done_shared`, padded; every recorded `reduce_kernel` carries it."""
LEAST_VALUES_A_THREAD, MOST_VALUES_A_THREAD = 16, 256
"""min_values_per_thread and max_values_per_thread."""
VECTORIZED_FROM = 128
"""Elements a result from which loads along the reduced dimension are vectorized."""
SEMAPHORE_BYTES = 4
"""One int a column of blocks counts which of them are done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reducer:
    """What a reduction is compiled for."""

    name: str
    scalar: str
    """Dtype that is loaded."""
    accumulator_bytes: int
    """Bytes of what a thread carries, such as 16 for a float with its index."""
    load_vector: int = 4
    """Neighbouring values of one load, where they go into one result (input_vec_size)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReduceGeometry:
    """One launch of a reduction."""

    threads: int
    """The bound it is compiled with."""
    output_vector: int
    """Neighbouring results that a thread makes together."""
    grid: Dim3
    block: Dim3
    shared_bytes: int
    """Static and dynamic together."""
    semaphore_bytes: int
    """What a memset clears before the launch; 0 where no results are put together across blocks."""
    staging_bytes: int
    """Partial results that blocks write to global memory and the last of them reads again."""
    elements: int
    """Elements of the source that it reads."""
    outputs: int


def reduce_launches(iterator: TensorIterator, reducer: Reducer, gpu: Gpu) -> tuple[ReduceGeometry, ...]:
    """The launches of a reduction; past 32-bit offsets there are several. The iterator has elements."""
    return tuple(_configured(part, reducer, gpu) for part in in_32_bits(iterator))


@dataclass(slots=True, kw_only=True)
class _Split:
    """How far the input is divided among threads, warps and blocks while a configuration is worked out."""

    inputs: int
    step: int = 1

    @property
    def values_a_thread(self) -> int:
        return -(-self.inputs // self.step)


def _configured(part: TensorIterator, reducer: Reducer, gpu: Gpu) -> ReduceGeometry:
    outputs = part.output_elements
    inputs = part.elements // outputs
    along_reduced = _fastest_is_reduced(part)
    vectorized, output_vector = _vectors(part, along_reduced, reducer)
    first, second = (inputs, outputs) if along_reduced else (outputs, inputs)
    first //= reducer.load_vector if vectorized else output_vector
    most_threads = 256 if reducer.scalar == "complex128" else 512  # mnt_wrapper::MAX_NUM_THREADS
    width, height = _block(first, second, most_threads // output_vector, gpu.warp_size)

    split, output_step = _Split(inputs=inputs), 1
    if along_reduced:
        split.step *= width
    else:
        output_step *= width
    across_warps = split.values_a_thread >= min(height * LEAST_VALUES_A_THREAD, MOST_VALUES_A_THREAD)
    if across_warps:
        split.step *= height
    else:
        output_step *= height
    columns = -(-(outputs // output_vector) // output_step)
    rows = 1
    most_blocks = gpu.sms * (gpu.max_threads_per_sm // (width * height))
    if across_warps and split.values_a_thread >= MOST_VALUES_A_THREAD and columns <= most_blocks:
        rows = max(
            min(-(-most_blocks // columns), -(-split.values_a_thread // LEAST_VALUES_A_THREAD)),
            -(-split.values_a_thread // MOST_VALUES_A_THREAD),
        )
    through_shared = across_warps or (along_reduced and width > gpu.warp_size)
    dynamic = reducer.accumulator_bytes * width * height * output_vector if through_shared else 0
    staging = reducer.accumulator_bytes * outputs * rows if rows > 1 else 0
    return ReduceGeometry(
        threads=most_threads // output_vector,
        output_vector=output_vector,
        grid=(columns, rows, 1),
        block=(width, height, 1),
        shared_bytes=STATIC_SHARED_BYTES + dynamic,
        semaphore_bytes=SEMAPHORE_BYTES * columns if rows > 1 else 0,
        staging_bytes=staging,
        elements=part.elements,
        outputs=outputs,
    )


def _fastest_is_reduced(part: TensorIterator) -> bool:
    """Whether the source's neighbours go into the same result."""
    strides, reduced = part.inputs[-1].strides, part.reduced_dimensions
    return reduced == len(part.shape) or strides[0] < strides[reduced]


def _vectors(part: TensorIterator, along_reduced: bool, reducer: Reducer) -> tuple[bool, int]:
    """Whether loads along the reduced dimension are vectorized, and how many neighbouring results a thread makes."""
    size = DTYPE_BYTES[reducer.scalar]
    if not part.shape:
        return False, 1
    source, reduced = part.inputs[-1], part.reduced_dimensions
    if source.strides[0 if along_reduced else reduced] != size:
        return False, 1
    if along_reduced:
        return reduced == 1 and part.elements // part.output_elements >= VECTORIZED_FROM, 1
    # get_output_vec_size: as many as divide the address, the dimension and every other stride.
    others = [stride // size for d, stride in enumerate(source.strides) if d != reduced]
    counts = [source.address // size, part.shape[reduced], *others]
    return False, next(vector for vector in (4, 2, 1) if all(count % vector == 0 for count in counts))


def _block(first: int, second: int, most_threads: int, warp_size: int) -> tuple[int, int]:
    """Width and height: powers of two, a warp wide first, then as high as it may be, then wider."""
    widest, highest = (_power_of_two(size) if size < most_threads else most_threads for size in (first, second))
    height = min(highest, most_threads // min(widest, warp_size))
    return min(widest, most_threads // height), height


def _power_of_two(count: int) -> int:
    """The largest that is not above it; at least 1."""
    return 1 << max(0, count.bit_length() - 1)
