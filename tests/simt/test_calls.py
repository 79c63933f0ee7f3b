"""Calls through pointers, guarded calls, and memory that threads ask for."""

import numpy as np
import pytest

from undertorch.gpus import find
from undertorch.simt import Fault, PtxError, launch
from undertorch.simt.launch import Memory
from undertorch.simt.runtime.heap import ALIGNMENT, BYTES, Heap


@pytest.mark.parametrize("threads", [1, 2])
def test_virtual_functions_of_objects_that_a_launch_before_made(run, threads):
    n, memory = 100, Memory()
    a = np.random.default_rng(1).uniform(1, 9, n).astype(np.float32)
    shapes, areas, corners = np.zeros(n, np.uint64), np.zeros(n, np.float32), np.zeros(n, np.int32)
    size, options = (4, 32), {"memory": memory, "threads": threads}
    run("make_shapes", *size, shapes, a, n, **options)
    run("ask_shapes", *size, shapes, areas, corners, n, **options)
    square = np.arange(n) % 3 != 0
    assert np.array_equal(areas, np.where(square, a * a, np.float32(3) * a * a))
    assert np.array_equal(corners, np.arange(n) + np.where(square, 4, 0))
    assert len(set(shapes.tolist())) == n == len(memory.heap.taken)
    run("delete_shapes", *size, shapes, n, **options)
    assert not memory.heap.taken


def test_a_table_of_functions(run):
    rng = np.random.default_rng(2)
    which, a, out = rng.integers(0, 3, 64, np.int32), rng.integers(-9, 9, 64, np.int32), np.zeros(64, np.int32)
    run("by_table", 1, 64, which, a, out)
    b = np.arange(64) % 7
    assert np.array_equal(out, np.choose(which, [a + b, a * b, a.astype(np.int64) ** b]))


@pytest.mark.parametrize("pointer", [0, 5, 1 << 40])
def test_a_pointer_to_no_function_is_a_fault(run, pointer):
    pointers = np.full(32, pointer, np.uint64)
    with pytest.raises(Fault, match="leads to no function") as caught:
        run("to_nowhere", 1, 32, pointers, np.zeros(32, np.int32))
    assert (caught.value.kind, caught.value.file) == ("trap", "objects.cu")


def test_a_function_is_not_memory():
    """Its address can be called; what lies there is not the kernel's to read."""
    text = """.version 8.0
.target sm_80
.address_size 64
.func f() { ret; }
.visible .entry kernel() { .reg .b64 %a; .reg .b32 %r; mov.u64 %a, f; ld.global.u8 %r, [%a]; ret; }
"""
    with pytest.raises(Fault, match="out-of-bounds"):
        launch(text, "kernel", 1, 1, (), gpu=find("H200"))


def test_functions_call_functions():
    text = """.version 8.0
.target sm_80
.address_size 64
.func (.param .b32 r) inner(.param .b32 n) {
.reg .b32 %n; .reg .pred %q; ld.param.b32 %n, [n]; setp.gt.u32 %q, %n, 9; @%q bra big; add.u32 %n, %n, 1;
st.param.b32 [r], %n; ret; big: st.param.b32 [r], 100; ret;
}
.func (.param .b32 r) outer(.param .b32 n) {
.reg .b32 %n, %m; .param .b32 a; .param .b32 b; ld.param.b32 %n, [n]; st.param.b32 [a], %n; call (b), inner, (a);
ld.param.b32 %m, [b]; mul.lo.u32 %n, %n, 2; st.param.b32 [a], %n; call (b), inner, (a); ld.param.b32 %n, [b];
add.u32 %n, %n, %m; st.param.b32 [r], %n; ret;
}
.visible .entry kernel(.param .u64 out) {
.reg .b64 %a; .reg .b32 %t; .param .b32 n; .param .b32 r;
ld.param.b64 %a, [out]; mov.u32 %t, %tid.x; mad.wide.u32 %a, %t, 4, %a; st.param.b32 [n], %t; call (r), outer, (n);
ld.param.b32 %t, [r]; st.global.b32 [%a], %t; ret;
}
"""
    out = np.zeros(32, np.int32)
    launch(text, "kernel", 1, 32, (out,), gpu=find("H200"))
    assert out.tolist() == [sum(100 if n > 9 else n + 1 for n in (t, 2 * t)) for t in range(32)]


def test_recursion_through_a_pointer_is_a_fault_when_it_happens():
    """Nobody can tell before: the pointer leads to `leaf` as long as n is 0."""
    text = """.version 8.0
.target sm_80
.address_size 64
.func leaf(.param .b32 n, .param .b64 out) {
.reg .b64 %o; .reg .b32 %r; ld.param.b64 %o, [out]; mov.b32 %r, 9; st.global.b32 [%o], %r; ret;
}
.func again(.param .b32 n, .param .b64 out) {
.reg .b64 %f, %g, %o; .reg .b32 %n; .reg .pred %q; .param .b32 a; .param .b64 b;
ld.param.b32 %n, [n]; ld.param.b64 %o, [out]; setp.eq.u32 %q, %n, 0; mov.u64 %f, leaf; mov.u64 %g, again;
selp.b64 %f, %f, %g, %q; sub.u32 %n, %n, 1; st.param.b32 [a], %n; st.param.b64 [b], %o;
p: .callprototype _ (.param .b32 _, .param .b64 _); call %f, (a, b), p; ret;
}
.visible .entry kernel(.param .u32 n, .param .u64 out) {
.reg .b64 %o; .reg .b32 %n; .param .b32 a; .param .b64 b; ld.param.b32 %n, [n]; ld.param.b64 %o, [out];
st.param.b32 [a], %n; st.param.b64 [b], %o; call again, (a, b); ret;
}
"""
    out = np.zeros(1, np.int32)
    launch(text, "kernel", 1, 1, (0, out), gpu=find("H200"))
    assert out[0] == 9
    with pytest.raises(Fault, match="recursion is not supported"):
        launch(text, "kernel", 1, 1, (1, out), gpu=find("H200"))


@pytest.mark.parametrize(("guard", "lanes"), [("@%q", range(5)), ("@!%q", range(5, 32)), ("", range(32))])
def test_a_guarded_call_is_made_where_its_guard_holds(guard, lanes):
    text = """.version 8.0
.target sm_80
.address_size 64
.func f(.param .b64 p) {
.reg .b64 %a; .reg .b32 %r; ld.param.b64 %a, [p]; mov.b32 %r, 7; st.global.b32 [%a], %r; ret;
}
.visible .entry kernel(.param .u64 out) {
.reg .b64 %a, %f; .reg .b32 %t; .reg .pred %q; .param .b64 x;
ld.param.b64 %a, [out]; mov.u32 %t, %tid.x; mad.wide.u32 %a, %t, 4, %a; setp.lt.u32 %q, %t, 5; mov.u64 %f, f;
st.param.b64 [x], %a; CALL
ret;
}
"""
    prototype = "p: .callprototype _ (.param .b64 _);"
    for call in (f"{guard} call f, (x);", f"{prototype} {guard} call %f, (x), p;"):
        out = np.zeros(32, np.int32)
        launch(text.replace("CALL", call), "kernel", 1, 32, (out,), gpu=find("H200"))
        assert np.flatnonzero(out).tolist() == list(lanes)


@pytest.mark.parametrize("n", [1, 3, 100])
def test_each_thread_gets_memory_of_its_own(run, n):
    out, memory = np.zeros(64, np.int32), Memory()
    run("scratch_arrays", 1, 64, out, n, memory=memory)
    assert np.array_equal(out, np.arange(64) * (n * (n - 1) // 2))
    assert not memory.heap.taken


def test_malloc_answers_null_when_the_heap_is_full(run):
    """8 MiB: 4 threads get 2 MiB less what rounding takes, the fifth nothing."""
    out = np.zeros(8, np.int32)
    run("scratch_arrays", 1, 8, out, (BYTES - 64) // 16)
    assert (out == -1).tolist() == [False] * 4 + [True] * 4


@pytest.mark.parametrize("call", ["call (n), malloc, (s);", "call malloc, (s);", "call (r), malloc, (s, s);"])
def test_a_call_of_malloc_that_is_none_is_refused(call):
    """4 bytes have no room for an address."""
    text = f""".version 8.0
.target sm_80
.address_size 64
.visible .entry kernel() {{ .param .b64 r; .param .b64 s; .param .b32 n; {call} ret; }}
"""
    with pytest.raises(PtxError, match=r"PTX line 4: malloc is called with other arguments"):
        launch(text, "kernel", 1, 1, (), gpu=find("H200"))


def test_what_is_freed_twice_is_a_fault(run):
    with pytest.raises(Fault, match="malloc has not handed out") as caught:
        run("frees_twice", 1, 8, np.zeros(1, np.int32))
    assert (caught.value.kind, caught.value.thread.thread) == ("invalid-free", (3, 0, 0))


def test_gaps_are_used_again_and_never_overlap():
    rng, heap, held = np.random.default_rng(3), Heap(), {}
    for _ in range(400):
        if held and rng.random() < 0.45:
            address = int(rng.choice(list(held)))
            del held[address]
            assert heap.release(address)
            assert not heap.release(address)
        else:
            size = int(rng.integers(0, BYTES // 20))
            address = heap.allocate(size)
            if address:
                assert address % ALIGNMENT == 0
                assert heap.start <= address <= heap.start + BYTES - size
                assert all(address + size <= other or other + length <= address for other, length in held.items())
                held[address] = size
    for address in held:
        assert heap.release(address)
    assert heap.allocate(BYTES) == heap.start
    assert heap.allocate(1) == 0
