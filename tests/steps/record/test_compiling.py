"""Where torch.compile and CUDA graphs leave code as it is, what would have been is told."""

from undertorch.records.steps import UNCOMPILED, UNCOMPILED_FUNCTION, WITHOUT_GRAPHS


def test_what_is_compiled_and_whether_by_cuda_graphs_is_told_at_its_line(monkeypatch, request, line_of):
    """With torch's own switch off. Of torch's modes, reduce-overhead and max-autotune launch by CUDA graphs
    (torch.compile's documentation); what is disabled compiles nothing."""
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    recorded = request.getfixturevalue("recording")("compiled.py")
    lines = {
        line_of("compiled.py", text): graphs
        for text, graphs in (
            ("plain = torch.compile(", False),
            ("graphs = torch.compile(", True),
            ("inside.compile(", True),
            ('mode="max-autotune"', True),
        )
    }
    said = [one for one in recorded.assumptions if "torch.compile" in one.what]
    assert {one.where.line: WITHOUT_GRAPHS in one.what for one in said} == lines
    functions = [one.where.function for one in said if one.what.startswith(UNCOMPILED_FUNCTION)]
    assert functions == ["loss_of"]
    assert sum(one.what.startswith(f"{UNCOMPILED} ") for one in said) == 3
