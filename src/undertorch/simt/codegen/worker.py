"""LLVM in a process of its own: an assertion in it ends that process, and becomes a sentence here.

It is run as a file, with the folder that holds llvmlite, and imports nothing else. Requests and answers on stdin and
stdout are a length (8 bytes, little-endian) and that many bytes. A request is the optimisation level and IR text; its
answer is the request's SHA-256, so that nobody takes it for another's, then `+` and object code, or `-` and what is
wrong.
"""

import hashlib
import struct
import sys
from typing import IO


def compile_module(text: str, level: int) -> bytes:
    """Object code of a module in IR text. Raises RuntimeError where LLVM does not take it."""
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(text)
    module.verify()
    target = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=host_features(),
        opt=level,
        reloc="pic",
        codemodel="jitdefault",
    )
    if level:
        # What vectors there are stand in the text; unrolling costs more time here than it saves later.
        options = llvm.create_pipeline_tuning_options(speed_level=level)
        options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
        builder = llvm.create_pass_builder(target, options)
        builder.getModulePassManager().run(module, builder)
    return bytes(target.emit_object(module))


def host_features() -> str:
    """What this CPU can do, as LLVM writes it. 512-bit vectors are left out: segments are 8 lanes wide."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    features["prefer-256-bit"] = True
    return str(features.flatten())


def read(stream: IO[bytes]) -> bytes | None:
    """One message; None at the end."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    (length,) = struct.unpack("<Q", head)
    data = stream.read(length)
    return data if len(data) == length else None


def send(stream: IO[bytes], data: bytes) -> None:
    """One message."""
    stream.write(struct.pack("<Q", len(data)) + data)
    stream.flush()


def serve() -> None:
    """Answers until the other side closes."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    while (request := read(sys.stdin.buffer)) is not None:
        try:
            answer = b"+" + compile_module(request[1:].decode(), request[0])
        except RuntimeError as error:
            answer = b"-" + str(error).encode()
        send(sys.stdout.buffer, hashlib.sha256(request).digest() + answer)


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    serve()
