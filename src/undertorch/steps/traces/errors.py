"""What a file gets that no step can be read from."""


class BadTrace(Exception):
    """A file that is no trace, or one that no step can be read from, said in one sentence."""
