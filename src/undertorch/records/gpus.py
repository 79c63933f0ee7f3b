"""A Gpu: the spec sheet of one GPU model. The sheets themselves are under `undertorch/gpus/sheets/`, one TOML each."""

from dataclasses import dataclass, field

from undertorch.records.kinds import Math


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """What has to be known of a GPU to compute geometry and occupancy and to predict times. Unknown is None.

    An SM is a compute unit and a warp a wavefront on AMD's GPUs.
    """

    name: str
    """As undertorch calls it, such as `H100-PCIe`."""
    full_name: str
    """As its driver calls it, such as `NVIDIA H100 PCIe`; `torch.cuda.get_device_name()` answers this."""
    vendor: str
    architecture: str
    compute_capability: tuple[int, int] | None
    """CUDA's major and minor; of AMD's GPUs what torch reports for the gfx target, such as (9, 4)."""
    verified: bool
    """Whether predicted times were compared with times measured on this GPU."""

    sms: int
    cuda_cores_per_sm: int
    """FP32 lanes of an SM: what a vendor counts as CUDA cores or stream processors."""
    boost_clock_mhz: float
    base_clock_mhz: float | None
    tensor_clock_mhz: float | None = None
    """Clock that the peaks of the tensor cores are quoted at (those of fp64 excepted); None: the boost clock."""
    memory_clock_mhz: float | None = None
    """Half the rate of a pin (double data rate), as nvidia-smi shows it."""
    memory_bus_bits: int | None = None
    memory_bytes: int
    """As its driver reports it where somebody wrote that down, otherwise as marketed; see its source."""
    l2_bytes: int
    memory_bandwidth: float
    """Global memory, bytes a second, as specified."""
    l2_bandwidth: float | None = None
    """Bytes a second, reads that hit, where somebody measured or published it."""
    nvlink_bandwidth: float | None = None
    """Bytes a second in both directions together; AMD: Infinity Fabric."""
    pcie_bandwidth: float | None = None
    """Bytes a second in one direction; where another link joins CPU and GPU in its place (GH200: NVLink-C2C), that."""
    peaks: dict[Math, float]
    """Operations a second, dense, at the boost clock (see tensor_clock_mhz). Absent: not there, or not published."""

    warp_size: int = 32
    banks: int = 32
    """Banks of shared memory."""
    bank_bytes: int = 4
    shared_bytes_per_clock: int | None = None
    """Of an SM; None: each bank answers a word a clock. (Turing's 32 banks take two clocks for that.)"""
    sector_bytes: int = 32
    """The unit that global memory is fetched in."""
    line_bytes: int = 128
    max_threads_per_block: int = 1024
    max_threads_per_sm: int
    max_blocks_per_sm: int
    registers_per_sm: int
    registers_per_block: int
    max_registers_per_thread: int = 255
    register_allocation_unit: int = 256
    """Registers are given to a warp in multiples of this."""
    warp_allocation_granularity: int = 4
    """Warps of a block are given registers in multiples of this (one a sub-partition)."""
    shared_per_sm: int
    """Bytes."""
    shared_per_block: int
    """Bytes a block gets without opting in."""
    shared_per_block_optin: int
    """Bytes a block can get."""
    shared_reserved_per_block: int = 0
    """Bytes that the driver takes of each block's share."""
    shared_allocation_unit: int = 128
    """Bytes; a block's shared memory is rounded up to a multiple of this."""
    shared_carveouts: tuple[int, ...] = ()
    """Bytes that an SM's shared memory can be set to, the smallest first (what is left is L1). Empty: it is fixed."""
    barriers_per_sm: int | None = None
    """Hardware barriers that the resident blocks of an SM share; None: no limit is known."""

    achieved_bandwidth: float | None = None
    """Bytes a second that a large copy kernel reached, read and written together; None: not measured for this sheet."""
    launch_gap_us: float | None = None
    """From the end of one kernel to the start of the next on one stream, with the queue full."""
    host_speed: float | None = None
    """How many times as fast as the server that CPU times were measured on (steps/predict/shares.py, HOST_OP_US) the
    CPU beside this GPU launches; None: as fast."""
    sources: dict[str, str] = field(default_factory=dict)
    """Where each figure comes from, by field name; of a peak, `peaks.tensor-bf16`."""

    @property
    def cuda_cores(self) -> int:
        """FP32 lanes of the whole GPU."""
        return self.sms * self.cuda_cores_per_sm

    @property
    def max_warps_per_sm(self) -> int:
        """Warps that can be resident on an SM."""
        return self.max_threads_per_sm // self.warp_size

    @property
    def shared_bandwidth(self) -> float:
        """Bytes a second of all SMs' shared memory together, without bank conflicts, at the boost clock."""
        a_clock = self.shared_bytes_per_clock or self.banks * self.bank_bytes
        return self.sms * a_clock * self.boost_clock_mhz * 1e6
