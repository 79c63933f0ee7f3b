"""What device printf writes is what C's printf writes: held against the C library, every flag, width and precision."""

import io
import json
import math
import subprocess
import sys
from itertools import product

import numpy as np
import pytest

import undertorch
from undertorch.simt.runtime import formats

WRITES = """
import ctypes, json, sys
C, out, room = ctypes.CDLL(None), [], ctypes.create_string_buffer(1024)
for form, value in json.load(sys.stdin):
    given = ctypes.c_double(float(value)) if form[-1] in "eEfFgGaA" else ctypes.c_int(value)
    C.snprintf(room, len(room), form.encode(), given)
    out.append(room.value.decode())
json.dump(out, sys.stdout)
"""
FLAGS = ["", "-", "+", " ", "#", "0", "-0", "+0", "#0", "+#", "#-", "-#+ 0"]
WIDTHS = [0, 1, 12, 30]
PRECISIONS = [None, 0, 1, 3, 14]


def c_writes(asked):
    """Of each format and value, in a process that nobody else has loaded libraries into."""
    command = [sys.executable, "-c", WRITES]
    return json.loads(
        subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=True).stdout
    )


def head(flags, width, precision):
    return f"%{flags}{width or ''}" + (f".{precision}" if precision is not None else "")


@pytest.mark.parametrize("letter", "doxXu")
def test_integers_are_written_as_c_writes_them(letter):
    asked, ours = [], []
    for flags, width, precision in product(FLAGS, WIDTHS, PRECISIONS):
        for value in (0, 1, 8, -1, 70000, -(2**31), 2**31 - 1):
            given = value if letter == "d" else value & 0xFFFFFFFF
            asked.append((head(flags, width, precision) + letter, value))
            ours.append(formats.integer(given, letter, flags, width, precision))
    assert ours == c_writes(asked)


@pytest.mark.parametrize("letter", "eEfFgGaA")
def test_floats_are_written_as_c_writes_them(letter):
    asked, ours = [], []
    for flags, width, precision in product(FLAGS, WIDTHS, PRECISIONS):
        for value in (0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, 1e300, 5e-324, 0.1, 123456.789, 2.5):
            asked.append((head(flags, width, precision) + letter, repr(value)))
            ours.append(formats.floating(value, letter, flags, width, precision))
    assert ours == c_writes(asked)


KERNEL = r"""
extern "C" __global__ void prints(int n) {
    printf("%hd %hhd %hu %hhu|%*d|%-*d|%.*f|", n, n, n, n, 6, 7, 6, 7, 2, 1.005);
    printf("%lld|%c|%s|%05.1f|%%", -1LL, 'x', "s", 2.25);
}
extern "C" __global__ void faults(int* x) { printf("caf\xc3\xa9"); x[100] = 1; }
"""


def test_lengths_and_widths_given_as_arguments():
    """70000 as a short is 4464, as a signed char 112."""
    printed = undertorch.cuda(KERNEL)["prints"][1, 1](70000).printed
    assert printed == ("4464 112 4464 112|     7|7     |1.00|", "-1|x|s|002.2|%")


def test_what_standard_output_cannot_write_hides_no_fault(monkeypatch):
    """A UnicodeEncodeError came in place of the Fault."""
    room = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(room, encoding="ascii"))
    with pytest.raises(undertorch.Fault):
        undertorch.cuda(KERNEL)["faults"][1, 1](np.zeros(1, np.int32))
    sys.stdout.flush()
    assert room.getvalue() == rb"caf\xe9"
