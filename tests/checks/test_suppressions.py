"""What a project accepts, and when it is told that it accepts nothing any more."""

import pytest

from checked_by_hand import checked, finding
from undertorch.checks.suppressions import BadSuppression, suppressed, suppressions
from undertorch.records import FindingKind


def written(folder, *entries):
    text = "\n".join(f"[[tool.undertorch.check.suppress]]\n{entry}" for entry in entries)
    (folder / "pyproject.toml").write_text(text)
    return suppressions(folder)


def test_the_nearest_pyproject_above_the_file_counts(tmp_path):
    written(tmp_path, 'kernel = "k"\nreason = "both write 1"')
    inside = tmp_path / "deep" / "kernels.py"
    inside.parent.mkdir()
    inside.write_text("")
    assert [one.reason for one in suppressions(inside)] == ["both write 1"]


@pytest.mark.parametrize(
    "entry",
    [
        'kernel = "k"',
        'kind = "race-global"',
        'fingerprint = "1"',
        'kernel = "k"\nkind = "race-global"\nfingerprint = "1"',
    ],
)
def test_a_finding_is_met_by_kernel_by_kind_by_line_or_by_all(tmp_path, entry):
    listed = written(tmp_path, f'{entry}\nreason = "fine"')
    (one,), stale = suppressed([checked(finding(FindingKind.RACE_GLOBAL, fingerprint="1"), kernel="k")], listed)
    assert one.findings == ()
    assert [s.reason for s in one.suppressed] == ["fine"]
    assert stale == ()


@pytest.mark.parametrize("entry", ['kernel = "other"', 'kind = "race-shared"', 'fingerprint = "2"',
                                   'kernel = "k"\nkind = "race-shared"'])  # fmt: skip
def test_what_differs_in_one_of_them_is_not_met(tmp_path, entry):
    listed = written(tmp_path, f'{entry}\nreason = "fine"')
    (one,), _ = suppressed([checked(finding(FindingKind.RACE_GLOBAL, fingerprint="1"), kernel="k")], listed)
    assert len(one.findings) == 1


def test_an_entry_that_meets_nothing_is_stale_only_where_its_kernel_was_launched(tmp_path):
    listed = written(tmp_path, 'kernel = "k"\nreason = "old"', 'kernel = "not launched"\nreason = "elsewhere"')
    _, (sentence,) = suppressed([checked(kernel="k")], listed)
    assert sentence == 'pyproject.toml: the suppression of kernel = "k" (“old”) meets no finding; take it out.'


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ('kernel = "k"', "suppression 1 gives no reason"),
        ('kernel = "k"\nreason = "  "', "suppression 1 gives no reason"),
        ('reason = "all of them"', "would accept everything"),
        ('kind = "race"\nreason = "r"', "there is no kind race; kinds are assert, bad-mask"),
        ('line = 3\nreason = "r"', "line is none of kernel, kind, fingerprint, reason"),
    ],
)
def test_bad_entries_are_refused_in_one_sentence(tmp_path, entry, said):
    with pytest.raises(BadSuppression, match=said):
        written(tmp_path, entry)


def test_other_settings_are_refused(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.undertorch.check]\nfail_on = 'note'")
    with pytest.raises(BadSuppression, match="has no fail_on; it has suppress"):
        suppressions(tmp_path)


@pytest.mark.parametrize("text", ["tool = 3", "[tool]\nundertorch = 'x'", "[tool.undertorch]\ncheck = []"])
def test_what_is_no_table_is_refused(tmp_path, text):
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(BadSuppression, match=r"is no table; write \[tool.undertorch.check\]"):
        suppressions(tmp_path)


def test_a_templates_name_stands_for_all_kernels_that_are_made_from_it(tmp_path):
    listed = written(tmp_path, 'kernel = "ns::put"\nreason = "fine"', 'kernel = "ns::put<int>"\nreason = "old"')
    (one,), stale = suppressed([checked(finding(), kernel="ns::put<float>")], listed)
    assert one.findings == ()
    assert stale == ()
    _, (sentence,) = suppressed([checked(kernel="ns::put<int>"), checked(finding(), kernel="ns::put<float>")], listed)
    assert 'kernel = "ns::put<int>"' in sentence
