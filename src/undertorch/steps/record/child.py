"""The process that runs the script: `python -m undertorch.steps.record.child REQUEST`."""

import os
import sys
import traceback
from pathlib import Path

import msgspec

from undertorch.steps.record.errors import RecordError
from undertorch.steps.record.exchange import INTERNAL, INTERRUPTED, Outcome, Request
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

        write(request, run(request, guard, lambda outcome: finish(request, outcome)))
    except RecordError as error:
        write(request, Outcome(error=type(error).__name__, message=str(error)))
    except KeyboardInterrupt:
        end(INTERRUPTED)
    except BaseException:
        traceback.print_exc()
        end(INTERNAL)
    end(0)


def finish(request: Request, outcome: Outcome) -> None:
    """Writes the outcome and ends the process at once."""
    write(request, outcome)
    end(0)


def write(request: Request, outcome: Outcome) -> None:
    """Writes the outcome whole or not at all."""
    aside = Path(f"{request.outcome}.part")
    aside.write_bytes(msgspec.msgpack.encode(outcome))
    aside.replace(request.outcome)


def end(status: int) -> None:
    """Ends the process here: no `finally:` of the script runs, nothing is saved, no thread is waited for."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1])
