"""The machine: a GPU in software that runs compiled PTX on NumPy arrays with the results a GPU gives."""

from undertorch.simt.errors import BadLaunch, Deadlock, Fault, PtxError, SimtError, Unsupported
from undertorch.simt.launch import Result, launch

__all__ = ["BadLaunch", "Deadlock", "Fault", "PtxError", "Result", "SimtError", "Unsupported", "launch"]
