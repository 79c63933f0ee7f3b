"""Coloured source reads as the source does, whatever it is."""

import re

from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from undertorch.records.totals import source_rows
from undertorch.reports.page.highlight import highlighted
from undertorch.reports.page.text import shown

PARTS = [*"ab1 \n\t\"'#(){}[]\\=:.,@<&f\r\f", "def ", "class ", '"""', "é", "\u202e"]
PYTHONISH = st.lists(st.sampled_from(PARTS)).map("".join)


def plain(row):
    return Markup(re.sub(r"</?span[^>]*>", "", row)).unescape()


@given(PYTHONISH, st.sampled_from(["x.py", "x.cu"]))
def test_every_row_reads_as_it_stands(text, file):
    assert [plain(row) for row in highlighted(file, text)] == [shown(row) for row in source_rows(text)]


def test_comments_strings_keywords_numbers_and_names_have_a_colour():
    (row,) = highlighted("x.py", "def f(x): return x + 12 if 'a' else None  # why")
    for kind, text in (("k", "def"), ("f", "f"), ("k", "return"), ("n", "12"), ("c", "# why"), ("k", "None")):
        assert f'<span class="{kind}">{text}</span>' in row
    assert '<span class="s">&#39;a&#39;</span>' in row


def test_a_string_over_several_rows_is_coloured_in_each():
    rows = highlighted("x.py", 'a = """one\n  two\nthree"""\nb = 1')
    assert rows[1] == '<span class="s">  two</span>'
    assert rows[2] == '<span class="s">three&#34;&#34;&#34;</span>'
    assert rows[3] == 'b = <span class="n">1</span>'


def test_a_file_that_breaks_off_is_coloured_up_to_there():
    rows = highlighted("x.py", "a = 1\nb = (((\n")
    assert rows[0] == 'a = <span class="n">1</span>'
    assert plain(rows[1]) == "b = ((("


def test_what_is_not_python_is_left_alone():
    assert highlighted("kernel.cu", "for (int i = 0; i < n; ++i) // def") == ["for (int i = 0; i &lt; n; ++i) // def"]
