"""Several ranks of one step together: communication that compute does not hide, and who waits for whom."""

from undertorch.steps.ranks.joining import join_ranks
from undertorch.steps.ranks.one_run import why_not_one_run

__all__ = ["join_ranks", "why_not_one_run"]
