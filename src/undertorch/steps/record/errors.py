"""What can be wrong with a recording, each said in one sentence."""


class RecordError(Exception):
    """A script could not be recorded. Its message is one sentence: what is wrong, where, what to do."""


class MissingScript(RecordError):
    """There is no such file, or it cannot be read."""


class NoTorch(RecordError):
    """torch is not installed."""


class NoCompiler(RecordError):
    """The guard has to be compiled once, and there is no C++ compiler, or it failed."""


class ScriptFailed(RecordError):
    """The script raised, or ended itself with a status other than 0, before the step was recorded. Its traceback was
    shown.
    """


class UnexplainedFailure(ScriptFailed):
    """It raised, and nothing is known of why: values that were made up may be the cause."""


class NoStep(RecordError):
    """The script ended without a training step."""


class NotHandedOver(RecordError):
    """What was recorded could not be written to the run's folder."""


class RecorderFailed(BaseException):
    """undertorch failed inside the script, which must not take it for an error of its own."""


class BadAssumption(RecordError):
    """A `LINE=VALUE` whose line or value makes no sense."""
