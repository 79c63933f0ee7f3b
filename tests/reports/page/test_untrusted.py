"""Files, names and arguments are other people's text: it is shown, and never becomes part of the page."""

from dataclasses import replace

import pytest

from paged import data, paged, tree
from steps_by_hand import STEP
from undertorch import gpus
from undertorch.records import Advice, Assumption, Where
from undertorch.reports.page import write_page
from undertorch.reports.page.text import in_script, short, shown
from undertorch.reports.page.write import page

SHEETS = {"H200": gpus.find("H200")}

NASTY = [
    "</script><script>alert(1)</script>",
    "</title></style></textarea><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)" x="',
    "' onfocus='alert(1)' autofocus='",
    "<!-- <script> -->",
    "]]> &lt;b&gt; &amp; &#0;",
    "{{ 7 * 7 }}{% raw %}",
    "ünï 漢字 😀 \u2028\u2029",
]


def told(text):
    """STEP with the text wherever a user's own text can stand."""
    where = Where(file=f"{text}.py", line=2, function=text)
    return replace(
        STEP,
        gpu=text,
        ops=tuple(replace(op, where=where, module=text, name=text) for op in STEP.ops),
        launches=tuple(
            replace(one, kernel=replace(one.kernel, name=text, library=text, note=text)) for one in STEP.launches
        ),
        advice=(Advice(kind=text, lines=(where,), saves_us=None, saves_bytes=None, what=text, op=text),),
        accounting=replace(
            STEP.accounting, ops_without_cost=(text,), assumed=(Assumption(where=where, what=text, count=2),)
        ),
        environment=replace(
            STEP.environment,
            script=text,
            arguments=(text,),
            gpu_name=text,
            driver=text,
            versions={text: text},
            sources={f"{text}.py": f"# first\n# {text}\nlast = 1\n" + "quiet = 2\n" * 20},
        ),
    )


def kinds(root):
    """Every element's tag with the names of its attributes: what the text must not change. (How many places a kernel's
    name may be broken at depends on the name.)"""
    found = [(one.tag, tuple(sorted(one.attributes))) for one in root.all()]
    return sorted(kind for kind in found if kind != ("wbr", ()))


@pytest.mark.parametrize("text", NASTY)
def test_a_text_adds_no_element_and_no_attribute(text):
    assert kinds(paged(told(text))) == kinds(paged(told("plain")))


@pytest.mark.parametrize("text", NASTY)
def test_a_text_is_shown_as_it_is(text):
    root = paged(told(text))
    rows = [one for one in root.find("tr", class_="hot") if one.find("code")]
    expected = f"# {text}"
    if "\u2028" not in text:  # Python has no such line end; a reader of rows by rules of its own would find one
        assert "".join(rows[0].find("td", class_="code")[0].find("code")[0].raw()) == expected
    found = data(root)
    assert found["steps"][0]["kernels"][0]["name"] == text
    assert found["sources"][0][1] == expected


def test_what_cannot_be_seen_is_made_visible():
    """A right-to-left override makes a line look like another one (CVE-2021-42574). HTML has no control characters."""
    text = "a = 1 # \u202e\u2066 \x00 \x1b[31m \x7f"
    assert shown(text) == "a = 1 # [U+202E][U+2066] ␀ ␛[31m ␡"
    html = page((told(text),), {})
    assert not any(character in html for character in "\u202e\u2066\x00\x1b\x7f")
    tree(html)


def test_names_that_are_no_unicode_are_written_all_the_same(tmp_path):
    """A file name of bytes that are no UTF-8 reaches Python with surrogates."""
    name = b"tr\xff\xfe.py".decode("utf-8", "surrogateescape")
    path = tmp_path / "page.html"
    write_page(path, [told(name)], SHEETS)
    assert "tr??.py" in path.read_text(encoding="utf-8")


def test_a_very_long_name_is_cut_in_the_middle_and_stays_whole_where_it_is_read():
    name = "void at::native::kernel<" + ", ".join(f"T{n}" for n in range(2000)) + ">"
    step = told(name)
    root = paged(step)
    cell = root.one(id="s0-kernels").find("code")[0]
    assert len(cell.text) <= 160
    assert cell.text.startswith("void at::native::kernel<T0")
    assert cell.text.endswith("T1999>")
    assert cell.attributes["title"] == name
    assert data(root)["steps"][0]["kernels"][0]["name"] == name


@pytest.mark.parametrize("longest", [5, 6, 21])
def test_short_keeps_both_ends(longest):
    assert short("x" * longest, longest) == "x" * longest
    cut = short("abcdefghij" * 10, longest)
    assert len(cut) == longest
    assert cut[0] == "a"
    assert cut[-1] == "j"


def test_json_in_a_script_cannot_end_it():
    assert in_script({"a": "</script><!--"}) == '{"a":"\\u003c/script>\\u003c!--"}'
