"""PTX text → instructions."""

from undertorch.simt.ptx.opcodes import FORMS as forms
from undertorch.simt.ptx.parser import parse

__all__ = ["forms", "parse"]
