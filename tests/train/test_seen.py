"""The page of the step that `undertorch train` shows."""

from dataclasses import replace

from drawn import drawn, one_row
from steps_by_hand import STEP
from undertorch.records import Advice, Idle, IdleCause
from undertorch.train.config import PRESETS
from undertorch.train.seen import named

NANO = PRESETS["nano"]
LATE = Idle(start_us=0, time_us=500, cause=IdleCause.LAUNCH)
AS_A_SCRIPT = replace(
    STEP,
    environment=replace(STEP.environment, script="/usr/lib/one_step.py", arguments=("/tmp/x/settings.json",)),
    idle=(LATE,),
    advice=tuple(
        Advice(kind=kind, lines=(), saves_us=1.0, saves_bytes=None, what="", op=None) for kind in ("launching", "sync")
    ),
)


def test_it_is_called_by_the_command_that_trains_so():
    text = drawn(named(AS_A_SCRIPT, NANO))
    assert text.startswith("undertorch train --preset nano · ")
    assert "one_step.py" not in text
    assert "settings.json" not in text


def test_a_run_replays_graphs_and_the_page_says_so():
    step = named(AS_A_SCRIPT, NANO)
    assert "With it, what it holds is launched at once" in one_row(drawn(step).splitlines()[-6:])
    assert [one.kind for one in step.advice] == ["sync"]
    alone = named(AS_A_SCRIPT, replace(NANO, graphs=False))
    assert "With it" not in drawn(alone)
    assert alone.advice == AS_A_SCRIPT.advice
