"""Where a kernel's variables lie."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Offsets in shared and local memory and the parameters, numbers in the table of symbols; by name."""

    shared: Mapping[str, int]
    local: Mapping[str, int]
    parameters: Mapping[str, int]
    symbols: Mapping[str, int]
