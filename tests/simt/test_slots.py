"""Where registers lie in memory: code of one kernel is compiled part by part, by whichever process needs it first."""

import random

from undertorch.simt.codegen.flow import _scan


def test_slots_do_not_depend_on_the_order_that_registers_are_listed_in():
    """Sets of names are in another order in every process, and objects are kept from process to process."""
    spans = {f"%r{n}": (n // 5, n // 5 + 3) for n in range(40)}
    widths = {name: 32 if n % 3 else 64 for n, name in enumerate(spans)}
    first = _scan(spans, widths)
    for seed in range(5):
        names = list(spans)
        random.Random(seed).shuffle(names)
        assert _scan({name: spans[name] for name in names}, widths) == first
