"""A line that holds much of the step, by module."""

from dataclasses import replace

from drawn import drawn, part
from steps_by_hand import LAUNCHES, OPS, STEP


def step_of(modules, lines=None):
    """One launch of 100 us for an op of each module, at one line unless others are given."""
    base = OPS[0]
    lines = lines or [7] * len(modules)
    ops = [
        replace(base, id=n, module=module, where=replace(base.where, line=line))
        for n, (module, line) in enumerate(zip(modules, lines, strict=True))
    ]
    launches = [replace(LAUNCHES[0], ops=(n,), start_us=100.0 * n, time_us=100) for n in range(len(ops))]
    return replace(STEP, ops=tuple(ops), launches=tuple(launches))


def shown(step):
    """Name → (time, share) of each row."""
    try:
        rows = part(drawn(step), "Modules")[1:]
    except StopIteration:
        return None
    return {row.split("  ")[-1].split(" · ")[0].strip(): " ".join(row.split()[1:4]) for row in rows if row.strip()}


def test_a_line_of_all_the_model_is_taken_apart_by_module():
    found = shown(step_of(["body.0", "body.0", "body.1", "fc", None]))
    assert found == {
        "body.0": "200 µs 40.0",
        "body.1": "100 µs 20.0",
        "fc": "100 µs 20.0",
        "no module": "100 µs 20.0",
    }


def test_names_are_told_apart_as_far_as_there_is_room():
    """Twelve layers of three modules are 36 names: by layer they are 12 rows of 300 us each. Of thirteen layers each
    module stands over all layers, 1300 us of 3900."""
    twelve = [f"layers.{layer}.{name}" for layer in range(12) for name in ("q", "k", "v")]
    assert set(shown(step_of(twelve)).values()) == {"300 µs 8.3"}
    thirteen = [*twelve, *(f"layers.12.{name}" for name in ("q", "k", "v"))]
    assert shown(step_of(thirteen)) == {f"layers.*.{name}": "1.30 ms 33.3" for name in ("q", "k", "v")}


def test_what_is_spread_over_lines_is_not():
    assert shown(step_of(["a", "b", "c", "d", "e", "f"], lines=[1, 1, 2, 2, 3, 3])) is None


def test_equal_modules_stand_as_they_come_in_the_step():
    """A third of a microsecond at places that floating point cannot hold: their sums differ in the last bits."""
    names = [f"b.{number}" for number in range(8)]
    step = step_of([*names, *names[::-1]])
    launches = tuple(replace(one, start_us=n * 100.7, time_us=100 / 3) for n, one in enumerate(step.launches))
    assert list(shown(replace(step, launches=launches))) == names
