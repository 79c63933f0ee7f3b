"""Where a figure comes from. Every group of figures that a person or a file is shown carries one of these."""

from enum import StrEnum


class Origin(StrEnum):
    """One origin never passes for another: a prediction is not a measurement, however good it is."""

    MEASURED = "measured"
    """A clock or a counter on a GPU."""
    COUNTED = "counted"
    """By the machine (the GPU in software), exactly."""
    COMPUTED = "computed"
    """Follows from shapes and published source, such as least bytes or PyTorch's own launch geometry."""
    PREDICTED = "predicted"
    """A model: times without a GPU, tiles of closed-source kernels, registers taken over from another build."""
