"""Ranks begin a profiled step together, as far as all come."""

import threading
import time

from undertorch.steps.measure.meeting import Meeting, meeting


def folders(tmp_path, number: int):
    made = [tmp_path / f"rank_{rank}" for rank in range(number)]
    for folder in made:
        folder.mkdir()
    return made


def test_nobody_goes_on_before_all_have_come(tmp_path):
    """Three ranks, three steps; each comes some milliseconds after the other, in another order each time."""
    own = folders(tmp_path, 3)
    came: list[tuple[int, int]] = []
    went: list[tuple[int, int]] = []
    wrong: list[tuple[int, int]] = []

    def rank(number: int) -> None:
        mine = Meeting(own[number], [one for one in own if one is not own[number]])
        for step in range(3):
            time.sleep(0.004 * ((number + step) % 3))
            came.append((step, number))
            mine.before(step)
            if sum(at == step for at, _ in came) < 3:
                wrong.append((step, number))
            went.append((step, number))
        assert not mine.missed

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(went) == 9
    assert not wrong


def test_one_that_does_not_come_is_waited_for_once(tmp_path):
    own, other = folders(tmp_path, 2)
    mine = Meeting(own, [other], patience_s=0.01)
    mine.before(9)
    assert mine.missed
    (own / "before_9").unlink()
    mine.before(10)
    assert not list(own.iterdir())


def test_who_meets_is_told_by_torchrun_and_by_the_folder(tmp_path):
    """The folder of a process that measures by itself is none of a rank's, even under torchrun."""
    environment = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    first, second = folders(tmp_path, 2)
    (first / "before_9").touch()
    one = meeting(second, environment)
    one.before(9)
    assert (second / "before_9").exists()
    assert not one.missed
    for alone in (meeting(tmp_path, environment), meeting(second, {})):
        alone.before(10)
    assert not (second / "before_10").exists()
