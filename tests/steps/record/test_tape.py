"""What is cut out of the Ops of a run: ids and microbatches from 0, and no forward that no backward goes back to."""

from undertorch.records import Op, Phase
from undertorch.steps.record.samples import Batch
from undertorch.steps.record.tape import Mark, Tape


def tape_of(*steps):
    """Each is a call of a model, `("call", samples)`, or an Op: its phase, microbatch, and the Op it goes back to."""
    tape = Tape()
    microbatch = 0
    for what, *rest in steps:
        if what == "call":
            tape.called(microbatch, Batch(samples=rest[0]))
            continue
        microbatch, forward = rest
        op = Op(
            id=tape.next,
            name="aten::mul",
            overload="Tensor",
            where=None,
            phase=what,
            microbatch=microbatch,
            arguments=(),
            outputs=(),
            forward=forward,
        )
        tape.append(op, live_bytes=100 + tape.next)
    return tape


FORWARD, BACKWARD, UPDATE = Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE


def test_a_model_called_twice_before_the_backward_trains_on_both_calls():
    """As two towers do. The samples are those of the first call."""
    tape = tape_of(("call", 6), (FORWARD, 0, None), ("call", 4), (FORWARD, 0, None), (BACKWARD, 0, 1), (BACKWARD, 0, 0))
    cut = tape.cut(Mark(op=0, live_bytes=0), 4)
    assert [op.phase for op in cut.ops] == [FORWARD, FORWARD, BACKWARD, BACKWARD]
    assert cut.samples == 6


def test_a_call_that_no_backward_goes_back_to_is_no_training():
    tape = tape_of(
        ("call", 50), (FORWARD, 0, None), ("call", 4), (FORWARD, 0, None), (FORWARD, 0, None), (BACKWARD, 0, 2)
    )
    cut = tape.cut(Mark(op=0, live_bytes=0), 4)
    assert [(op.phase, op.microbatch) for op in cut.ops] == [
        (Phase.OTHER, None),
        (FORWARD, 0),
        (FORWARD, 0),
        (BACKWARD, 0),
    ]
    assert cut.samples == 4


def test_a_step_counts_its_ops_and_microbatches_from_zero():
    """The second of two steps: the first one's forward lies outside, so a backward that goes back to it has none."""
    tape = tape_of(
        *((FORWARD, 7, None), (BACKWARD, 7, 0), (UPDATE, None, None)),
        *((FORWARD, 8, None), (BACKWARD, 8, 3), (FORWARD, 9, None), (BACKWARD, 9, 0), (BACKWARD, 9, 5)),
    )
    cut = tape.cut(Mark(op=3, live_bytes=103), 8)
    assert [op.id for op in cut.ops] == [0, 1, 2, 3, 4]
    assert [op.microbatch for op in cut.ops] == [0, 0, 1, 1, 1]
    assert [op.forward for op in cut.ops] == [None, 0, None, None, 2]


def test_memory_is_listed_where_it_changes_and_peaks_where_it_is_most():
    tape = tape_of((UPDATE, None, None), (UPDATE, None, None))
    memory = tape.cut(Mark(op=0, live_bytes=100), 2).memory
    assert [(sample.op, sample.live_bytes) for sample in memory.samples] == [(1, 101)]
    assert (memory.start_bytes, memory.peak_bytes, memory.peak_op) == (100, 101, 1)


def test_what_was_forgotten_is_no_longer_there():
    tape = tape_of((FORWARD, 0, None), (BACKWARD, 0, 0), (FORWARD, 1, None))
    tape.forget(2)
    assert tape.op(1) is None
    assert tape.op(2).id == 2
