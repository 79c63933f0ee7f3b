"""Names of source files in PTX: NVRTC and LLVM write bytes beyond ASCII as `\\303\\274`, in octal."""

import re

OCTAL = re.compile(r"\\([0-3][0-7]{2})")
FILE = re.compile(r'^\s*\.file\s+\d+\s+"([^"\n]*)"', re.MULTILINE)


def unescaped(name: str) -> str:
    """A name as the file system has it."""
    if OCTAL.search(name) is None:
        return name
    return OCTAL.sub(lambda found: chr(int(found[1], 8)), name).encode("latin-1", "replace").decode(errors="replace")


def file_names(ptx: str) -> tuple[str, ...]:
    """Of all files whose lines the PTX knows."""
    return tuple(dict.fromkeys(unescaped(found) for found in FILE.findall(ptx)))
