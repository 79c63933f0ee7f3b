"""Which of the machine's own tests test_working_kernels.py runs again."""

FIXED = {"instrument", "threads"}
"""What its fixture `run` gives each launch, whatever the test says."""


def pytest_collection_modifyitems(config, items):
    """Cases that differ in nothing else run once."""
    seen, kept, repeated = set(), [], []
    for item in items:
        case = None
        if item.path.name == "test_working_kernels.py" and hasattr(item, "callspec"):
            others = {name: value for name, value in item.callspec.params.items() if name not in FIXED}
            case = item.originalname, repr(others)
        (repeated if case in seen else kept).append(item)
        if case is not None:
            seen.add(case)
    config.hook.pytest_deselected(items=repeated)
    items[:] = kept
