"""The registry of rules: what each form has to give. meaning.py tells what a rule is."""

from collections.abc import Callable

Rule = Callable[..., tuple]
RULES: dict[str, Callable[..., Rule]] = {}
ANY = lambda _: True  # noqa: E731  (left open by the PTX ISA)
ONE = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000, "f64": 0x3FF0000000000000}


def rule(*names):
    """Registers what makes a rule out of types and options."""

    def register(make):
        RULES.update(dict.fromkeys(names, make))
        return make

    return register


def cut(value, bits):
    return value & ((1 << bits) - 1)


def bits_of(kind):
    return int(kind.lstrip("bus"))


def value(raw, kind):
    """A register's low bits as a number."""
    bits = bits_of(kind)
    raw = cut(raw, bits)
    return raw - (1 << bits) if kind[0] == "s" and raw >> (bits - 1) else raw


def limits(kind):
    bits = bits_of(kind)
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)


def clamp(number, kind):
    low, high = limits(kind)
    return max(low, min(high, number))
