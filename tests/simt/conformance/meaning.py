"""What each form has to give: the PTX ISA's definitions on Python's integers and on exact rationals.

A rule takes the operands' bits and returns, for each result, its bits or a function that says whether an answer will
do: a NaN of any payload (the PTX ISA fixes no payload for .f64), a value that the ISA leaves open, or any within the
error that it states for an approximation.
"""

from simt.conformance import conversion_rules, float_rules, integer_rules  # noqa: F401  (they register rules)
from simt.conformance.rules import RULES
from undertorch.simt.ptx.opcodes import match

BOUNDED = {"fapprox", "happrox", "frsqrt", "frcp64approx", "frsqrt64approx"}


def meaning(trial):
    """The rule of one way of trying an opcode."""
    found = match(trial.opcode)
    return RULES[found.form.name]([t.name for t in found.types], found.options, trial)


def is_bounded(opcode):
    """Whether the PTX ISA states an error, instead of the bits."""
    found = match(opcode)
    return found.form.name in BOUNDED or found.options.get("rounding") in {"approx", "full"}
