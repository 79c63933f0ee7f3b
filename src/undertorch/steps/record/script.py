"""Runs a file as Python itself would: as `__main__`, with its own arguments and its own folder to import from."""

import builtins
import sys
import traceback
import types
from collections.abc import Sequence
from pathlib import Path

from undertorch.steps.record.errors import ScriptFailed

HERE = Path(__file__).parent


def run_script(script: str, arguments: Sequence[str]) -> None:
    """Returns when the script ends well. Raises ScriptFailed when it does not, after its traceback was shown."""
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).absolute().parent))
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=script, __builtins__=builtins, __cached__=None)
    sys.modules["__main__"] = module
    try:
        code = compile(Path(script).read_bytes(), script, "exec")
        exec(code, module.__dict__)
    except SystemExit as end:
        _ended(script, end)
    except Exception as error:
        _show(error)
        raise ScriptFailed(f"{script} raised {type(error).__name__}; its traceback is above.") from None


def _ended(script: str, end: SystemExit) -> None:
    """`sys.exit()` and `sys.exit(0)` are a good end; a text is printed, as Python does."""
    if end.code is None or end.code == 0:
        return
    status = end.code if isinstance(end.code, int) else 1
    if not isinstance(end.code, int):
        print(end.code, file=sys.stderr)
    raise ScriptFailed(f"{script} ended itself with status {status} before its training step was recorded.")


def _show(error: Exception) -> None:
    """The traceback as the script alone would have shown it."""
    shown = traceback.TracebackException.from_exception(error)
    _strip(shown)
    print("".join(shown.format()), end="", file=sys.stderr)


def _strip(shown: traceback.TracebackException) -> None:
    """Takes the recorder's own frames out, of the causes too."""
    kept = [frame for frame in shown.stack if not Path(frame.filename).is_relative_to(HERE)]
    shown.stack = traceback.StackSummary.from_list(kept)
    for cause in (shown.__cause__, shown.__context__):
        if cause is not None:
            _strip(cause)
