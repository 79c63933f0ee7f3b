"""The page as one file: templates, styles, scripts and data in one HTML text that asks nobody for anything."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from undertorch.records import Dim3, Gpu, Step
from undertorch.records.files import write_whole
from undertorch.records.ranks import RanksReport
from undertorch.reports.page.comparison import comparison, labels
from undertorch.reports.page.data import page_data
from undertorch.reports.page.marks import often
from undertorch.reports.page.ranks import ranks_view
from undertorch.reports.page.step import step_view
from undertorch.reports.page.text import breakable, in_script, short, shown
from undertorch.reports.terminal.missing import amount
from undertorch.reports.terminal.numbers import count, flops, percent, size, time

STYLES = ("colours", "base", "head", "source", "kernels", "charts", "timeline", "tables", "narrow", "print")
"""Files of css/, in the order in which they apply."""

SCRIPTS = (
    *("human", "said", "theme", "folding", "gaps", "steps", "lines", "roofline"),
    *("lanes", "drawing", "keys", "pointer", "timeline", "main"),
)
"""Files of js/. They share one scope; main.js, the last, starts them."""

FIRST = "first"
"""The script that runs before anything is drawn, so that a remembered theme does not flash."""


def write_page(path: Path, steps: Sequence[Step], gpus: Mapping[str, Gpu], ranks: RanksReport | None = None) -> None:
    """Writes the page of one or several steps, whole or not at all.

    `gpus` holds the spec sheets by `Step.gpu`; without its sheet, a step's page leaves out what is measured against
    the GPU's peaks. `ranks`: what several ranks' steps say of one another. Raises OSError where the file cannot be
    written, ValueError where there is no step.
    """
    write_whole(path, page(steps, gpus, ranks).encode("utf-8"))


def page(steps: Sequence[Step], gpus: Mapping[str, Gpu], ranks: RanksReport | None = None) -> str:
    """The page's HTML. Raises ValueError where there is no step."""
    if not steps:
        raise ValueError("a page needs at least one step")
    environment = Environment(
        loader=PackageLoader("undertorch.reports.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Every text of a step passes through here on its way into the page.
        finalize=lambda value: shown(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )
    environment.filters.update(
        **{"time": time, "size": size, "flops": flops, "percent": percent, "count": count},
        **{"by": by, "short": short, "breakable": breakable, "often": often, "amount": amount},
    )
    named = labels(steps)
    views = [
        step_view(step, gpus.get(step.gpu), number, label)
        for number, (step, label) in enumerate(zip(steps, named, strict=True))
    ]
    sources = list(dict.fromkeys(file.text for view in views for file in view.files if file.text is not None))
    first, script = _read("js", FIRST), "\n".join(_read("js", name) for name in SCRIPTS)
    script = f'(() => {{\n"use strict";\n{script}\n}})();'
    return environment.get_template("page.html").render(
        views=views,
        sources=sources,
        compared=comparison(steps, gpus, named) if len(steps) > 1 else (),
        ranks=None if ranks is None else ranks_view(ranks),
        data=in_script(page_data(views, sources)),
        style=Markup("\n".join(_read("css", name) for name in STYLES)),
        first=Markup(first),
        script=Markup(script),
        hashes=f"{_hash(first)} {_hash(script)}",
    )


def by(dim: Dim3) -> str:
    """`132`, `32 × 12` or `8 × 4 × 2`: what is 1 at the end is left out."""
    last = max((place for place, size in enumerate(dim) if size != 1), default=0)
    return " × ".join(f"{size:,}" for size in dim[: last + 1])


def _read(folder: str, name: str) -> str:
    return (Path(__file__).parent / folder / f"{name}.{folder}").read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """As a content security policy names a script that may run: these two may, whatever else gets into the page."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
