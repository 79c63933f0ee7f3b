"""Every form of the table against the PTX ISA's definitions (meaning.py, memory.py, warps.py).

Which forms there are, NVIDIA's assembler says (tests/golden/ptx_forms.json.gz). The quick tests take some forms of each
row, evenly, and all rows; the slow ones take all.
"""

import pytest

from simt.conformance.against import all_cases, case_differences, wrong_answers
from simt.conformance.atomics import atomic_cases
from simt.conformance.forms import PLAIN, spelt
from simt.conformance.memory import load_cases, sent_cases, store_cases
from simt.conformance.programs import plain_programs, real_forms
from simt.conformance.warps import warp_cases
from undertorch.simt.ptx import opcodes
from undertorch.simt.ptx.opcodes import FORMS, match

SECTIONS = {name: getattr(opcodes, name) for name in ("INTEGER", "LOGIC", "FLOAT", "HALF", "COMPARE", "MOVE")}
QUICK = 60
"""Forms of a row in the quick tests."""
ONLY_FAULTS = {"trap", "brkpt"}
"""They end a kernel, or do nothing: test_features.py has the first."""


def of_rows(rows, most=None):
    """Opcodes of rows with their targets; of each row at most `most`, evenly."""
    out = {}
    for row in rows:
        own = {o: t for o, t in real_forms().items() if match(o).form is row}
        step = max(1, -(-len(own) // most)) if most else 1
        out |= dict(sorted(own.items())[::step])
    return out


def check(spellings):
    wrong = [answer for program in plain_programs(spellings) for answer in wrong_answers(program)]
    assert not wrong, f"{len(wrong)}: {wrong[:5]}"


@pytest.mark.parametrize("section", SECTIONS)
def test_results_are_those_of_the_definition(section):
    check(of_rows([row for row in SECTIONS[section] if row in PLAIN], QUICK))


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS)
def test_results_of_all_forms_are_those_of_the_definition(section):
    check(of_rows([row for row in SECTIONS[section] if row in PLAIN]))


FAMILIES = {
    "loads": load_cases, "stores": store_cases, "stores into parameters": sent_cases, "atomics": atomic_cases,
    "lanes, barriers, control": warp_cases,
}  # fmt: skip


def plain_spelling(opcode):
    """Without orders, scopes and hints: those change no value."""
    options = match(opcode).options
    return not {"order", "scope", "cop"} & options.keys() and "L1::" not in opcode and "L2::" not in opcode


@pytest.mark.parametrize("family", FAMILIES)
def test_memory_holds_what_the_definition_says(family):
    forms = {o: t for o, t in real_forms().items() if plain_spelling(o) or family.startswith("lanes")}
    if family == "loads":  # each is code of the runtime's own, to be compiled: other types in other spaces
        forms = dict(sorted(forms.items())[::3])
    for case in FAMILIES[family](forms):
        assert not case_differences(case), case.name


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_orders_scopes_and_hints_change_no_value(family):
    for case in FAMILIES[family](real_forms()):
        assert not case_differences(case), case.name


@pytest.mark.slow
def test_every_form_is_tried():
    """Of each row and each way to spell it that exists."""
    forms = real_forms()
    tried = {trial.opcode for program in plain_programs(of_rows(PLAIN)) for trial in program.trials}
    tried |= {opcode for case in all_cases(forms) for opcode in case.forms}
    assert set(forms) - tried == ONLY_FAULTS
    assert tried <= set(forms)


def test_every_row_has_a_form_that_exists():
    """A row that nothing in PTX matches would be a mistake in the table. (call has no types to spell.)"""
    rows = {match(opcode).form.pattern for opcode in real_forms()}
    assert {row.pattern for row in FORMS} - rows == {"call.uni?"}


def test_the_list_of_forms_is_that_of_the_table_as_it_is_now():
    """A row that changed has to be asked of ptxas again: benchmarks/golden_ptx_forms.py."""
    spellings = {opcode for row in PLAIN for opcode in spelt(row)}
    assert {o for o in real_forms() if match(o) is None} == set()
    assert {o for o in real_forms() if match(o).form in PLAIN} <= spellings
