"""Who may serve an op's pass, and why. Each op's file lists its own, the usual one first."""

from dataclasses import dataclass


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
    figures: str | None = None
    """Measured, with where."""


LIBRARY_NORM = Candidate(
    passes="forward, backward",
    who="PyTorch",
    kernel="native_layer_norm or _fused_rms_norm, and their backward",
    serves="weights of the rows' own dtype",
    why="taken where ours is not 2 % ahead of it",
)

OWN_NORM_FORWARD = Candidate(
    passes="forward",
    who="undertorch",
    kernel="norm_forward (Triton)",
    serves="rows of up to 32768 elements; wider ones wide_norm_forward",
    why="torch's reads each row twice, and mixed dtypes not at all",
)

OWN_NORM_BACKWARD = Candidate(
    passes="backward",
    who="undertorch",
    kernel="norm_backward and column_sums (Triton)",
    serves="rows of up to 16384 elements; wider ones wide_norm_dx and wide_norm_dw",
    why="torch's makes two passes over gradient and rows, one for the input and one for the weights",
)
