"""Without a number the second step is recorded, or the third where that is without what a script does now and then."""

from dataclasses import replace

import pytest

from steps_by_hand import OPS
from undertorch import gpus
from undertorch.records import Phase
from undertorch.steps.record import record
from undertorch.steps.record.errors import ScriptFailed
from undertorch.steps.record.ordinary import now_and_then


def op(name, line, module=None, phase=Phase.OTHER):
    return replace(OPS[0], name=name, where=replace(OPS[0].where, line=line), module=module, phase=phase)


def test_the_third_step_has_less_where_it_has_some_of_the_lines_and_no_others():
    print_, model = op("aten::_local_scalar_dense", 3), op("aten::mm", 5, module="net")
    trained = op("aten::mm", 7, module="net", phase=Phase.FORWARD)
    file = OPS[0].where.file
    assert now_and_then([print_, model, trained], [model, trained]) == ((file, 3),)
    assert now_and_then([print_], []) == ((file, 3),)
    assert now_and_then([trained], []) == ()
    assert now_and_then([model], [model]) == ()
    assert now_and_then([print_], [model]) == (), "each does something of its own"


@pytest.fixture
def ordinary(scripts):
    def recorded(*arguments, step=None):
        return record(scripts / "now_and_then.py", [str(one) for one in arguments], gpus.find("H200"), step=step)

    return recorded


def why(recording):
    return [one.what for one in recording.assumptions if "step 3 is shown" in one.what]


def names(recording):
    return [op.name for op in recording.ops]


def test_what_is_printed_after_the_first_step_and_seldom_again_is_not_in_the_step(ordinary, line_of):
    recording = ordinary("prints", 1, 10, 30)
    assert recording.environment.step == 3
    assert "aten::_local_scalar_dense" not in names(recording)
    (said,) = why(recording)
    line = line_of("now_and_then.py", 'if habit == "prints"') + 1
    assert f"now_and_then.py:{line}" in said
    assert "--step 2 shows it" in said


def test_a_step_that_is_asked_for_is_recorded_as_it_is(ordinary):
    recording = ordinary("prints", 1, 10, 30, step=2)
    assert recording.environment.step == 2
    assert "aten::_local_scalar_dense" in names(recording)
    assert not why(recording)


def test_what_is_done_after_every_step_belongs_to_it(ordinary):
    recording = ordinary("evaluate", 1, 1, 30)
    assert recording.environment.step == 2
    assert not why(recording)


def test_an_evaluation_after_the_first_step_is_not_in_the_step(ordinary):
    recording = ordinary("evaluate", 1, 10, 30)
    assert recording.environment.step == 3
    assert names(recording).count("aten::addmm") == 1, "one forward, that of the training"


def test_what_begins_in_the_third_step_leaves_the_second(ordinary):
    recording = ordinary("evaluate", 2, 10, 30)
    assert recording.environment.step == 2


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("prints", 1, 10, 2), id="the script ends"),
        pytest.param(("fails", 2, 10, 30), id="the script fails"),
        pytest.param(("long", 2, 10, 30), id="an evaluation does not end"),
    ],
)
def test_where_there_is_no_third_step_the_second_is_recorded(ordinary, arguments):
    recording = ordinary(*arguments)
    assert recording.environment.step == 2
    assert names(recording).count("aten::addmm") == 1
    assert not why(recording)


def test_a_script_that_fails_in_its_second_step_fails(ordinary):
    with pytest.raises(ScriptFailed):
        ordinary("fails", 1, 10, 30)
