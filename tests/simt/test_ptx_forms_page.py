"""docs/ptx-forms.md says what the machine runs today."""

import importlib.util
from pathlib import Path

from undertorch.simt.ptx.opcodes import FORMS

DOCS = Path(__file__).parents[2] / "docs"


def test_the_list_of_forms_is_current():
    """`python docs/ptx_forms.py` writes it."""
    spec = importlib.util.spec_from_file_location("ptx_forms_page", DOCS / "ptx_forms.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.PAGE.read_text(encoding="utf-8") == script.page()
    assert sum(len(forms) for forms in script.TITLES.values()) == len(FORMS)
