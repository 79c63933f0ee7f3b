"""What a kernel's pointers point to, read off its C++ name (Itanium C++ ABI, 5.1 "External Names (a.k.a. Mangling)").

Substitutions and template parameters are followed; at the first thing that is not known here, nothing is said at all.
"""

from dataclasses import dataclass, field

BUILTIN = {
    "v": "void",
    "w": "wchar_t",
    "b": "bool",
    "c": "char",
    "a": "signed char",
    "h": "unsigned char",
    "s": "short",
    "t": "unsigned short",
    "i": "int",
    "j": "unsigned int",
    "l": "long",
    "m": "unsigned long",
    "x": "long long",
    "y": "unsigned long long",
    "n": "__int128",
    "o": "unsigned __int128",
    "f": "float",
    "d": "double",
    "e": "long double",
    "g": "__float128",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CppType:
    """A type of C++, without const and volatile."""

    name: str
    """Of a pointer, that of what it points to, and a star."""
    pointee: "CppType | None" = None


DEEPEST = 500
"""Types that are no builtins, in one name: the reader calls itself for each part of one."""


class _Unknown(Exception):
    """The name has a part that is not read here."""


def parameters(mangled: str) -> tuple[CppType, ...] | None:
    """Types of a function's parameters; None where the name does not tell, or not to this reader."""
    if not mangled.startswith("_Z"):
        return None
    reader = _Reader(mangled, 2)
    try:
        templated = reader.function_name()
        if templated:
            reader.type()  # of what it returns
        found = []
        while reader.at < len(mangled):
            found.append(reader.type())
    except (_Unknown, IndexError, ValueError):
        return None
    return () if [t.name for t in found] == ["void"] else tuple(found)


def demangled(mangled: str) -> str | None:
    """A function's name with its template arguments, as `scan::sum<float, 32>`; None where it is not read here."""
    if not mangled.startswith("_Z"):
        return None
    reader = _Reader(mangled, 2)
    try:
        reader.function_name()
    except (_Unknown, IndexError, ValueError):
        return None
    return reader.called


@dataclass(slots=True)
class _Reader:
    text: str
    at: int
    seen: list[CppType] = field(default_factory=list)
    """What S_, S0_, … stand for."""
    arguments: list[CppType] = field(default_factory=list)
    """What T_, T0_, … stand for."""
    called: str = ""
    """The function, with its template arguments."""
    depth: int = 0

    def _spelt(self, name: str) -> str:
        return f"{name}<{', '.join(argument.name for argument in self.arguments)}>"

    def skip(self, letters: str) -> bool:
        if self.text.startswith(letters, self.at):
            self.at += len(letters)
            return True
        return False

    def function_name(self) -> bool:
        """Reads the function's name; whether it has template arguments."""
        if not self.skip("N"):
            name = self.source_name()
            self.called = name
            if self.text[self.at : self.at + 1] != "I":
                return False
            self.seen.append(CppType(name=name))
            self.arguments = self.template_arguments()
            self.called = self._spelt(name)
            return True
        name, templated = "", False
        while not self.skip("E"):
            if name and not (templated or self.text[self.at] == "I"):
                self.seen.append(CppType(name=name))
            if self.text[self.at] == "I":
                self.seen.append(CppType(name=name))
                self.arguments, templated = self.template_arguments(), True
                self.called = self._spelt(name)
            else:
                own = self.source_name()
                name, templated = f"{name}::{own}" if name else own, False
                self.called = name
        return templated

    def source_name(self) -> str:
        self.skip("L")  # of internal linkage
        start = self.at
        while self.text[self.at].isdigit():
            self.at += 1
        if start == self.at:
            raise _Unknown
        length = int(self.text[start : self.at])
        name = self.text[self.at : self.at + length]
        self.at += length
        return name

    def template_arguments(self) -> list[CppType]:
        if not self.skip("I"):
            raise _Unknown
        found = []
        while not self.skip("E"):
            if self.skip("L"):
                found.append(self._literal())
            else:
                found.append(self.type())
        return found

    def _literal(self) -> CppType:
        """A template's value: its type and digits, n before them for a minus. It is no type."""
        kind = self.text[self.at]
        if kind not in BUILTIN:
            self._unknown()
        end = self.text.index("E", self.at)
        digits, self.at = self.text[self.at + 1 : end].replace("n", "-"), end + 1
        return CppType(name={"b0": "false", "b1": "true"}.get(kind + digits, digits))

    def type(self) -> CppType:
        """One type; each that is no builtin can be stood for by an S from then on."""
        letter = self.text[self.at]
        if letter in BUILTIN:
            self.at += 1
            return CppType(name=BUILTIN[letter])
        self.depth += 1
        if self.depth > DEEPEST:
            self._unknown()
        if letter == "S" and self.text[self.at + 1] in "_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ":
            self.at += 1
            found = self.seen[self._number()]
            if self.text[self.at : self.at + 1] == "I":
                self.template_arguments()
                self.seen.append(found)
            return found
        if letter == "P":
            self.at += 1
            pointee = self.type()
            found = CppType(name=f"{pointee.name}*", pointee=pointee)
        elif letter in "KVr":
            while self.text[self.at] in "rVK":  # together they are one step
                self.at += 1
            found = self.type()
        elif letter == "T":
            self.at += 1
            found = self.arguments[self._number()]
        elif letter == "N":
            return self._nested()
        elif letter.isdigit():
            found = CppType(name=self.source_name())
            if self.text[self.at : self.at + 1] == "I":
                self.seen.append(found)
                self.template_arguments()
        else:
            self._unknown()
        self.seen.append(found)
        return found

    def _nested(self) -> CppType:
        self.at += 1
        name = self.type().name if self.text[self.at] == "S" else ""
        while not self.skip("E"):
            if self.text[self.at] == "I":
                self.template_arguments()
            else:
                name = f"{name}::{self.source_name()}" if name else self.source_name()
            self.seen.append(CppType(name=name))
        return self.seen[-1]

    def _number(self) -> int:
        """`_` is the first, `0_` the second: base 36."""
        end = self.text.index("_", self.at)
        digits, self.at = self.text[self.at : end], end + 1
        return int(digits, 36) + 1 if digits else 0

    def _unknown(self) -> int:
        raise _Unknown
