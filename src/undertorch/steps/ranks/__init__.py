"""Several ranks of one step together: communication that compute does not hide, and who waits for whom."""

from undertorch.steps.ranks.joining import join_ranks

__all__ = ["join_ranks"]
