"""Runs a file as Python itself would: as `__main__`, with its own arguments and its own folder to import from; or a
module, as by `python -m`.
"""

import builtins
import importlib.util
import re
import sys
import traceback
import types
from collections.abc import Sequence
from pathlib import Path

from undertorch.steps.record.errors import RecorderFailed, ScriptFailed, UnexplainedFailure
from undertorch.steps.record.remedies import remedy

HERE = Path(__file__).parent
FAKE = re.compile(
    r"/torch/(_subclasses|_prims|_prims_common|_refs|_decomp|_meta_registrations|_dynamo|_compile|utils/_stats)\b"
)
"""Files of torch that run in the place of a kernel."""


def run_script(script: str, arguments: Sequence[str], module: str | None = None) -> None:
    """Returns when the script ends well. Raises ScriptFailed when it does not, after its traceback was shown.

    `module`: the dotted name under which it runs as a part of its package, so that its relative imports work.
    """
    folder = Path.cwd() if module is not None else Path(script).absolute().parent
    sys.argv = [str(Path(script).absolute()) if module is not None else script, *arguments]
    sys.path.insert(0, str(folder))
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=sys.argv[0], __builtins__=builtins, __cached__=None)
    sys.modules["__main__"] = main
    try:
        if module is not None:
            whole = f"{module}.__main__" if Path(script).name == "__main__.py" else module
            main.__spec__ = importlib.util.find_spec(whole)
            main.__package__ = whole.rpartition(".")[0]
        code = compile(Path(script).read_bytes(), script, "exec")
        exec(code, main.__dict__)
    except SystemExit as end:
        _ended(script, end)
    except (KeyboardInterrupt, RecorderFailed):
        raise
    except BaseException as error:
        _show(error)
        what_to_do = remedy(error)
        said = f"{script} raised {type(error).__name__}; its traceback is above."
        raise (UnexplainedFailure(said) if what_to_do is None else ScriptFailed(f"{said} {what_to_do}")) from None


def _ended(script: str, end: SystemExit) -> None:
    """`sys.exit()` and `sys.exit(0)` are a good end; a text is printed, as Python does."""
    if end.code is None or end.code == 0:
        return
    status = end.code if isinstance(end.code, int) else 1
    if not isinstance(end.code, int):
        print(end.code, file=sys.stderr)
    raise ScriptFailed(f"{script} ended itself with status {status} before its training step was recorded.")


def _show(error: BaseException) -> None:
    """The traceback as the script alone would have shown it."""
    shown = traceback.TracebackException.from_exception(error)
    _strip(shown)
    print("".join(shown.format()), end="", file=sys.stderr)


def _strip(shown: traceback.TracebackException) -> None:
    """Takes out the recorder's frames and those of torch's fake tensors, which a GPU would not have; of causes too."""
    kept = [
        frame
        for frame in shown.stack
        if not Path(frame.filename).is_relative_to(HERE) and not FAKE.search(frame.filename)
    ]
    shown.stack = traceback.StackSummary.from_list(kept)
    for cause in (shown.__cause__, shown.__context__):
        if cause is not None:
            _strip(cause)
