"""Which call lies in which: a thread's events nest, and each belongs to the innermost one around it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from undertorch.steps.traces.reading import Seen


def nest(events: Iterable[Seen]) -> None:
    """Gives every event its parent. They are in order of their start, the longer first where two start together."""
    open_on: dict[tuple[object, object], list[Seen]] = defaultdict(list)
    for event in events:
        stack = open_on[event.thread]
        while stack and stack[-1].end <= event.start:
            stack.pop()
        # One that is longer than what it began in (clocks of two tracers) lies beside it.
        around = len(stack) - 1
        while around >= 0 and stack[around].end < event.end:
            around -= 1
        event.parent = stack[around] if around >= 0 else None
        stack.append(event)


def outwards(event: Seen | None) -> Iterator[Seen]:
    """The event and everything around it, innermost first."""
    while event is not None:
        yield event
        event = event.parent
