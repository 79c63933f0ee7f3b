"""The process that runs the script: `python -m undertorch.steps.measure.child REQUEST`."""

import os
import sys
import traceback
from pathlib import Path

import msgspec

from undertorch.steps.measure import exchange
from undertorch.steps.measure.compiled import ask_for_provenance
from undertorch.steps.measure.exchange import Measured, Request
from undertorch.steps.record.errors import RecorderFailed, RecordError

INTERNAL = 70
"""Exit status of a child that failed by itself, not by the script (EX_SOFTWARE of sysexits.h)."""


def main(path: str) -> None:
    """Measures what the request asks for and writes what came of it."""
    request = msgspec.json.decode(Path(path).read_bytes(), type=Request)
    folder = Path(request.folder)
    ask_for_provenance()
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # the profiler's own remarks are not the script's
    try:
        from undertorch.steps.measure.run import run

        run(request)
    except RecordError as error:
        exchange.write(folder, Measured(error=type(error).__name__, message=str(error)))
    except KeyboardInterrupt:
        os._exit(130)
    except (Exception, RecorderFailed):
        traceback.print_exc()
        sys.exit(INTERNAL)


if __name__ == "__main__":
    main(sys.argv[1])
