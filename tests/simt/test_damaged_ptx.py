"""Damaged PTX is refused in a sentence: never by an error of Python's own."""

import random
import re
from pathlib import Path

import pytest

from undertorch.simt import BadLaunch, PtxError, Unsupported
from undertorch.simt.program import prepare

KERNELS = Path(__file__).parent / "kernels"
ODD = ["0", "-1", "99999999999999999999", "%r1", "%f1", "%rd1", "[", "]", ";", "{", "}", "@%p1", ".b8", "1.5", "k", "(",
       "0f7FC00000", "<", ".align", ".v4", "=", ",", ":"]  # fmt: skip


def damaged(text, rng):
    """One token cut off, dropped, replaced by another of the file, or by an odd one."""
    words = re.findall(r"\s+|[\w.%$]+|.", text)
    at = rng.randrange(len(words))
    match rng.randrange(5):
        case 0:
            words = words[:at]
        case 1:
            del words[at]
        case 2:
            words[at] = rng.choice(words)
        case _:
            words[at] = rng.choice(ODD)
    return "".join(words)


@pytest.mark.parametrize("seed", range(6))
def test_damaged_files_are_refused_in_a_sentence(seed):
    rng = random.Random(seed)
    texts = [(KERNELS / name).read_text() for name in ("classics.ptx", "features.ptx", "objects.ptx")]
    refused = 0
    for _ in range(10):
        text = rng.choice(texts)
        head = text[: text.index(".visible .entry")]
        name, body = rng.choice(re.findall(r"(?ms)^(?:\.visible )?\.entry (\w+)(\(.*?^\})", text))
        if len(body) > 6000:
            continue
        try:
            prepare(damaged(f"{head}\n.visible .entry {name}{body}\n", rng), name, "none")
        except (PtxError, Unsupported, BadLaunch) as error:
            refused += 1
            assert str(error).endswith((".", ")"))  # noqa: PT017
    assert refused
