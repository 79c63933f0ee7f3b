"""What can stop a run, each said in one sentence."""


class TrainError(Exception):
    """The run cannot begin or go on. The message says what is wrong, where, and what to do."""


class BadText(TrainError):
    """The text is missing, empty, too short, binary or unreadable."""


class BadSetting(TrainError):
    """An option, or two together, make no sense."""


class BadCheckpoint(TrainError):
    """A checkpoint is damaged, or belongs to another model."""


class BadNumbers(TrainError):
    """A loss or gradient is no number any more, or the run has diverged."""


class ProcessGone(TrainError):
    """Another process of the run has ended."""


class NotSaved(TrainError):
    """A file of the run, or its last checkpoint, could not be written."""
