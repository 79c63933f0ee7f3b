"""The process that runs the script: `python -m undertorch.steps.record.child REQUEST`."""

import os
import sys
import traceback
from contextlib import suppress
from pathlib import Path

import msgspec

from undertorch.steps.record.errors import NotHandedOver, RecordError
from undertorch.steps.record.exchange import INTERNAL, INTERRUPTED, LOST, Outcome, Request
from undertorch.steps.record.guard import Guard
from undertorch.steps.record.importing import import_torch


def main(path: str) -> None:
    """Records what the request asks for, writes the outcome, and ends the process."""
    request = msgspec.json.decode(Path(path).read_bytes(), type=Request)
    try:
        guard = Guard(Path(request.guard))
        # torch may be imported only now that the guard's hooks are registered.
        import_torch()
        from undertorch.steps.record.run import run

        done = run(request, guard, lambda outcome: finish(request, outcome), lambda outcome: keep(request, outcome))
        finish(request, done)
    except RecordError as error:
        finish(request, Outcome(error=type(error).__name__, message=str(error)))
    except KeyboardInterrupt:
        end(INTERRUPTED)
    except BaseException:
        traceback.print_exc()
        finish(request, Outcome(), INTERNAL)


def begin(path: str) -> None:
    """Makes CUDA tensors fake in a process that the script's multiprocessing started. Nothing of it is recorded."""
    request = msgspec.json.decode(Path(path).read_bytes(), type=Request)
    guard = Guard(Path(request.guard))
    import_torch()
    from undertorch.steps.record.run import stand_in

    stand_in(request, guard)


def finish(request: Request, outcome: Outcome, status: int = 0) -> None:
    """Writes the outcome and ends the process at once. Called inside the script, which must hear of no error."""
    try:
        write(request, outcome)
    except OSError as error:
        message = (
            f"What was recorded of {request.script} could not be written ({error.strerror}): let the script set no"
            " limit to the size of files, and see that the disk of the temporary folder is not full (TMPDIR names it)."
        )
        try:
            write(request, Outcome(error=NotHandedOver.__name__, message=message))
        except OSError:
            end(LOST)
    end(status)


def keep(request: Request, outcome: Outcome) -> None:
    """Writes an outcome that the script goes on after; a disk that cannot take it is spoken of when another comes."""
    with suppress(OSError):
        write(request, outcome)


def write(request: Request, outcome: Outcome) -> None:
    """Writes the outcome whole or not at all."""
    aside = Path(f"{request.outcome}.part")
    aside.write_bytes(msgspec.msgpack.encode(outcome))
    aside.replace(request.outcome)


def end(status: int) -> None:
    """Ends the process here: no `finally:` of the script runs, nothing is saved, no thread is waited for."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            continue  # closed, taken away, or something else in its place
    os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1])
