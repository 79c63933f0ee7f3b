"""Rows of the table that touch memory: loads, stores, atomics, fences, cache hints, asynchronous copies."""

from collections.abc import Iterator

from undertorch.simt.ptx.forms import Form, row


def _memory(pattern: str, operands: str, end: str = "<vector:vector>?.<any>") -> Form:
    """A load or store of one, two or four elements: of at most 16 bytes (checks.py)."""
    return row(f"{pattern}.{end}", operands, name="ld" if pattern.startswith("ld") else "st", cost="memory")


def _vectors(pattern: str, operands: str) -> tuple[Form, ...]:
    """The same, as two rows."""
    return tuple(_memory(pattern, operands, end) for end in ("<vector:v2>?.<any>", "<vector:v4>.<quarter>"))


def _atomics(result: str) -> Iterator[tuple[str, str]]:
    """What follows order and scope, and the operands; `result` is empty where there is none."""
    rows = [
        ("<op:add>", "<u32|u64|s32|f32|f64>"),
        ("<op:add>.<noftz:noftz>", "<half>"),
        ("<op:min|max>", "<word>"),
        ("<op:and|or|xor>", "<b32|b64>"),
        ("<op:inc|dec>", "u32"),
    ]
    for op, types in rows + ([("<op:exch>", "<b32|b64>"), ("<op:cas>", "<bits>")] if result else []):
        if "cas" in op:
            yield f"<space:atomspace>?.{op}.{types}", f"{result}[a] b c"
        else:
            yield f"<space:global>?.{op}.L2::cache_hint?.{types}", f"{result}[a] b c?"
            yield f"<space:shared::cta|shared>.{op}.{types}", f"{result}[a] b"


MEMORY = (
    *_vectors("ld.<order:weak>?.<space:inner>.<cop:loads>?", "d [a]"),
    *_vectors("ld.<order:weak>?.<space:global>?.<cop:loads>?", "d [a]"),
    _memory("ld.<order:weak>?.<space:global>?.<cop:loads>?.<second>.<second>?", "d [a] c?"),
    _memory("ld.<order:weak>?.<space:global>?.<hint>.<hint>?.<hint>?", "d [a] c?"),
    _memory("ld.<space:global>.<cop:nc>.<hint>?.<hint>?.<hint>?", "d [a] c?"),
    _memory("ld.<order:relaxed|acquire>.<scope:scope>.<space:far>?.<hint>?.<hint>?.<hint>?", "d [a] c?"),
    _memory("ld.<order:volatile>.<space:far>?", "d [a]"),
    *_vectors("ldu.<space:global>?", "d [a]"),
    *_vectors("st.<order:weak>?.<space:shared::cta|shared|local|param::func|param>.<cop:stores>?", "[a] b"),
    *_vectors("st.<order:weak>?.<space:global>?.<cop:stores>?", "[a] b"),
    _memory("st.<order:weak>?.<space:global>?.<cop:stores>?.<L2::cache_hint>", "[a] b c"),
    _memory("st.<order:weak>?.<space:global>?.<keep>.L2::cache_hint?", "[a] b c?"),
    _memory("st.<order:relaxed|release>.<scope:scope>.<space:far>?.<keep>?.L2::cache_hint?", "[a] b c?"),
    _memory("st.<order:volatile>.<space:far>?", "[a] b"),
    row("prefetch.<global>?.<L1|L2|L2::evict_last|L2::evict_normal>", "[a]", name="nothing", cost="memory"),
    row("prefetch.local.<L1|L2>", "[a]", name="nothing", cost="memory"),
    row("prefetchu.L1", "[a]", name="nothing", cost="memory"),
    row("applypriority.<global>?.L2::evict_normal", "[a] b", name="nothing", cost="memory"),
    row("discard.<global>?.L2", "[a] b", name="nothing", cost="memory"),
    *(
        row(f"{word}.<order:{order}>?.<scope:scope>?.{end}", operands, name=word, cost="atomic")
        for word, order, result in (("atom", "order", "d "), ("red", "relaxed|release", ""))
        for end, operands in _atomics(result)
    ),
    row(
        "createpolicy.fractional.<first:L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged>"
        ".<second:L2::evict_first|L2::evict_unchanged>?.b64",
        "d a?",
        name="createpolicy",
        since=(7, 4),
        target=80,
    ),
    row(
        "createpolicy.range.<global>?.<first:L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged>"
        ".<second:L2::evict_first|L2::evict_unchanged>?.b64",
        "d [a] b c",
        name="createpolicy",
        since=(7, 4),
        target=80,
    ),
    row("createpolicy.cvt.L2.b64", "d a", name="createpolicy", since=(7, 4), target=80),
    row("<membar>.<level:cta|gl|sys>", "", name="fence", cost="memory"),
    row("fence.<level:cta|gpu|sys|cluster>", "", cost="memory"),
    row("fence.<order:sc|acq_rel|acquire|release>.<scope:scope>", "", cost="memory"),
    row(
        "cp.async.<cop:ca|cg>.shared.global.L2::cache_hint?.<L2::64B|L2::128B|L2::256B>?",
        "[a] [b] c e? f?",
        name="cp.async",
        cost="memory",
        target=80,
    ),
    row("cp.async.commit_group", "", name="cp.async.commit", cost="memory", target=80),
    row("cp.async.wait_group", "a", name="cp.async.wait", cost="memory", target=80),
    row("cp.async.wait_all", "", name="cp.async.wait", cost="memory", target=80),
)
