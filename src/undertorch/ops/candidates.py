"""Who may serve an op's pass, and why. Each op's file lists its own, the usual one first."""

from dataclasses import dataclass

from undertorch.costs.training_norms import WIDEST_BACKWARD, WIDEST_FORWARD, WIDEST_NARROW


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One way to serve some calls."""

    passes: str
    """Which of the op's passes: `forward`, `backward`, `both`, `step`."""
    who: str
    """`undertorch` or `PyTorch`."""
    kernel: str
    serves: str
    """Which calls."""
    why: str
    """Of an own kernel: the reason that it exists. Of the library's: when it is taken."""


def norm_candidates(*, centred: bool, residual: bool) -> tuple[Candidate, ...]:
    """Of one of the four norms: is the mean taken off, and is a residual added first."""
    about = "" if centred or residual else ", and those of about 8192 or above 16384,"
    library = "native_layer_norm" if centred else "_fused_rms_norm"
    reads = "the sum is not read again for the norm" if residual else "torch's reads each row twice"
    sums = ", and the sum's own gradient is added in another" if residual else ""
    return (
        Candidate(
            passes="forward",
            who="undertorch",
            kernel="norm_forward, or wide_norm_forward (Triton)",
            serves=f"rows of up to {WIDEST_FORWARD} elements in registers; wider ones{about} are read twice",
            why=f"{reads}; weights of another dtype than the rows' are taken, which torch's are not",
        ),
        Candidate(
            passes="backward",
            who="undertorch",
            kernel="norm_backward or held_norm_backward, and column_sums (Triton)",
            serves=f"rows of up to {WIDEST_BACKWARD[centred]} elements, of half types above {WIDEST_NARROW} in shared "
            "memory if they begin at multiples of 16 bytes; wider ones wide_norm_dx and wide_norm_dw",
            why=f"torch's makes two passes over gradient and rows, one for the input and one for the weights{sums}",
        ),
        Candidate(
            passes="forward, backward",
            who="PyTorch",
            kernel=f"{'add, then ' if residual else ''}{library}, and {library}_backward{' with an add' * residual}",
            serves="weights of the rows' own dtype",
            why="taken where ours is not 2 % ahead of it",
        ),
        by_reference("forward, backward"),
    )


def by_reference(passes: str) -> Candidate:
    """Plain torch, where own kernels serve floats of at most 32 bits on one GPU."""
    return Candidate(
        passes=passes,
        who="PyTorch",
        kernel="the reference",
        serves="UNDERTORCH_OPS=library, other dtypes, the CPU",
        why="for what the kernels do not take",
    )
