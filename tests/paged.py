"""A page as a tree of elements, for tests that ask what it holds. Markup that is not well-formed raises."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

from undertorch.records import Gpu, Step
from undertorch.reports.page.write import page

VOID = {"meta", "link", "br", "wbr", "img", "input", "hr"}
SHAPES = {"rect", "path", "circle", "stop"}
"""Of SVG, written as `<rect/>`."""


@dataclass
class Element:
    """One element. `texts` are its own and its children's, in order."""

    tag: str
    attributes: dict[str, str | None] = field(default_factory=dict)
    children: list["Element | str"] = field(default_factory=list)

    def all(self) -> Iterator["Element"]:
        """Itself and every element below it."""
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.all()

    def find(self, tag: str | None = None, **attributes: str) -> list["Element"]:
        """Elements by tag and attributes; `class_` is one of the classes, `_` in a name stands for `-`."""
        wanted = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
        return [one for one in self.all() if (tag is None or one.tag == tag) and one.has(wanted)]

    def one(self, tag: str | None = None, **attributes: str) -> "Element":
        """The only such element."""
        (found,) = self.find(tag, **attributes)
        return found

    def has(self, wanted: dict[str, str]) -> bool:
        """Whether it has these attributes."""
        return all(
            value in (self.attributes.get(name) or "").split()
            if name == "class"
            else self.attributes.get(name) == value
            for name, value in wanted.items()
        )

    @property
    def text(self) -> str:
        """All text in it, blanks as one."""
        return " ".join("".join(self.raw()).split())

    def raw(self) -> Iterator[str]:
        """All text in it, as it stands."""
        for child in self.children:
            if isinstance(child, str):
                yield child
            elif child.tag not in ("script", "style", "title"):
                yield from child.raw()


class Tree(HTMLParser):
    """Builds the tree; every element is closed in its turn."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("page")
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in SHAPES, f"<{tag}/> is no element that closes itself"
        self.open[-1].children.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> where <{self.open[-1].tag}> is open, line {self.getpos()[0]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def tree(html: str) -> Element:
    """The page as a tree."""
    parser = Tree()
    parser.feed(html)
    parser.close()
    assert parser.open == [parser.root], f"<{parser.open[-1].tag}> is not closed"
    return parser.root


def paged(*steps: Step, gpus: dict[str, Gpu] | None = None) -> Element:
    """The page of the steps, as a tree."""
    return tree(page(steps, gpus or {}))


def data(root: Element) -> dict:
    """What the page's scripts draw from."""
    (script,) = root.find("script", id="data")
    return json.loads("".join(child for child in script.children if isinstance(child, str)))
