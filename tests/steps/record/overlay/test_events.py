"""The library in C and the code in Python mean the same by what is told."""

import re
from pathlib import Path

from undertorch.steps.record.overlay import events, library, scratch

HEADER = (library.SHIM / "shared.h").read_text()


def test_kinds_have_the_numbers_of_the_header():
    (body,) = re.findall(r"enum told \{(.*?)\};", HEADER, re.DOTALL)
    names = re.findall(r"[A-Z_]+", re.sub(r"//.*|= 1", "", body))
    assert [(kind.name, kind.value) for kind in events.Told] == list(zip(names, range(1, 100), strict=False))


def test_an_events_text_is_as_long_as_in_the_header():
    assert f"TEXT_BYTES = {events.TEXT_BYTES}," in HEADER


def test_what_processes_share_has_room_in_its_file():
    """Events and two sets of 65,536 bits; the rest of `struct shared` takes less than a page."""
    (count,) = re.findall(r"EVENTS = (\d+)", HEADER)
    assert int(count) * (events.TEXT_BYTES + 24) + 2 * 65536 // 8 + 4096 <= scratch.STATE_BYTES


def test_the_folders_of_a_run_have_the_names_that_the_library_knows():
    sources = "".join(path.read_text() for path in Path(library.SHIM).glob("*.c"))
    assert f'#define FOLDER "{scratch.RUN}"' in sources
    assert f'"%s/{scratch.COPY}"' in sources
    assert f'links = "{scratch.LINKS}"' in sources
