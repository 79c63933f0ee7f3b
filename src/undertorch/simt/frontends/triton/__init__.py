"""Triton's kernels on the machine: what stands in the place of its driver."""
