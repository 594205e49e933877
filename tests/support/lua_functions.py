"""The functions of a compiled Lua script, with their upvalues and locals. The format is that of Lua 5.1, which the
servers embed.
"""

import struct
from dataclasses import dataclass, field
from typing import Final

from lupa import lua51

_HEADER: Final = b"\x1bLua\x51\x00\x01\x04\x08\x04\x08\x00"  # Lua 5.1, little endian, 8 bytes for a size and a number
_CONSTANTS: Final = {0: 0, 1: 1, 3: 8}  # the size of a constant in bytes, by type; a string states its own length
_TEXT: Final = 4
_SETGLOBAL: Final = 7  # the opcode, in the lowest 6 bits of an instruction; the highest 18 bits select the constant


@dataclass
class LuaFunction:
    """A Lua function. `line` is its first line in the composed script, or 0 for the script itself."""

    line: int
    last_line: int
    upvalues: int
    # Names that the function assigns and that no enclosing function declares.
    assigned: set[str] = field(default_factory=set)
    # For each local: its name, and the first and last instruction of its scope.
    locals: list[tuple[str, int, int]] = field(default_factory=list)

    @property
    def most_locals(self) -> int:
        """Return the highest number of locals in scope at once."""
        return max((self._known_at(first) for _, first, _ in self.locals), default=0)

    @property
    def shadowed(self) -> set[str]:
        """Return the names of locals that are declared again in their scope."""
        return {
            name
            for name, first, last in self.locals
            for other, begins, _ in self.locals
            # A name with "(" is an internal variable of a loop.
            if name == other and first < begins < last and not name.startswith("(")
        }

    def _known_at(self, instruction: int) -> int:
        return sum(first <= instruction < last for _, first, last in self.locals)


def functions_of(script: bytes) -> list[LuaFunction]:
    """Return the script itself and all functions in it."""
    runtime = lua51.LuaRuntime(encoding=None)
    compiled = runtime.execute(b"return function(text) return string.dump(assert(loadstring(text))) end")
    return _Reader(compiled(b"--" + script)).functions  # "--" turns the flags in the first line into a comment


class _Reader:
    """A reader of a compiled script."""

    def __init__(self, compiled: bytes) -> None:
        assert compiled.startswith(_HEADER)
        self._data, self._at = compiled, len(_HEADER)
        self.functions: list[LuaFunction] = []
        self._read_function()

    def _read_function(self) -> None:
        self._skip_text()  # the name of the source
        line, last_line, upvalues = self._numbers("iiB3x")
        made = LuaFunction(line, last_line, upvalues)
        self.functions.append(made)
        instructions = [self._number("I") for _ in range(self._number("i"))]
        constants = [self._constant() for _ in range(self._number("i"))]
        made.assigned = {constants[each >> 14] for each in instructions if each & 63 == _SETGLOBAL}
        for _ in range(self._number("i")):
            self._read_function()
        self._skip(4 * self._number("i"))  # the line number of each instruction
        for _ in range(self._number("i")):
            name, (first, last) = self._text(), self._numbers("ii")
            made.locals.append((name, first, last))
        for _ in range(self._number("i")):
            self._skip_text()  # the name of an upvalue

    def _constant(self) -> str:
        """Return a constant if it is a string, otherwise ""."""
        kind = self._number("B")
        if kind == _TEXT:
            return self._text()
        self._skip(_CONSTANTS[kind])
        return ""

    def _numbers(self, form: str) -> tuple[int, ...]:
        numbers: tuple[int, ...] = struct.unpack_from("<" + form, self._data, self._at)
        self._at += struct.calcsize("<" + form)
        return numbers

    def _number(self, form: str) -> int:
        return self._numbers(form)[0]

    def _text(self) -> str:
        size = self._number("Q")
        self._at += size
        return self._data[self._at - size : self._at - 1].decode(errors="replace")

    def _skip_text(self) -> None:
        self._skip(self._number("Q"))

    def _skip(self, size: int) -> None:
        self._at += size
