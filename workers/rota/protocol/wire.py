"""RESP packing of arguments, and the encoding and decoding of texts.

A command is an array of bulk strings. `Packed` is a sequence of arguments in wire form, together with the number of
arguments. The parts of a turn that never change (script, key, owner, tiers) can therefore be packed once, and each turn
only joins bytes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

Arg = bytes | str | int


_FOREIGN: Final = "surrogateescape"


def text_of(raw: object) -> str:
    """Return a reply as text. Where a name is expected, another program may have written any bytes. Bytes that are not
    UTF-8 become lone surrogates, so that the text can be sent back as the original bytes. Use `shown` to display the
    text."""
    return raw.decode("utf-8", _FOREIGN) if isinstance(raw, bytes) else str(raw)


def shown(text: str) -> str:
    r"""Return a text from the server in a form that can be written anywhere: bytes that are not UTF-8 become `\xff`."""
    return text if text.isascii() else text.encode("utf-8", _FOREIGN).decode("utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True)
class Packed:
    """A sequence of `count` arguments, as bulk strings in wire form."""

    count: int
    data: bytes

    def __add__(self, other: "Packed") -> "Packed":
        return Packed(self.count + other.count, self.data + other.data)


def packed_in(count: int, data: bytes, step: int = 1) -> Packed:
    """Return the arguments in bytes that another process wrote to shared memory, or NOTHING if the bytes are not valid.
    The number of arguments must be a multiple of `step`.

    An invalid sequence must not be sent. If its count were too high, the server would wait for more arguments. If its
    count were too low, the server would interpret the rest as commands, and their replies would be mistaken for replies
    to our commands.
    """
    at = 0
    for _ in range(count):
        end = data.find(b"\r\n", at)
        digits = data[at + 1 : end]
        if data[at : at + 1] != b"$" or end < 0 or not digits.isdigit() or len(digits) > _MAX_DIGITS:
            return NOTHING
        at = end + int(digits) + 4
        if data[at - 2 : at] != b"\r\n":
            return NOTHING
    return Packed(count, data) if count >= 0 and count % step == 0 and at == len(data) else NOTHING


_MAX_DIGITS = 9
_BULK_STRING = b"$%d\r\n%b\r\n"
NOTHING = Packed(0, b"")


def pack(args: Iterable[Arg]) -> Packed:
    """Pack arguments as RESP bulk strings."""
    fields: list[int | bytes] = []
    for arg in args:
        raw = arg if type(arg) is bytes else (arg if type(arg) is str else str(arg)).encode("utf-8", _FOREIGN)
        fields.append(len(raw))
        fields.append(raw)
    count = len(fields) // 2
    return Packed(count, _BULK_STRING * count % tuple(fields))  # formatting all fields at once takes a third less time


def unpack(packed: Packed) -> list[bytes]:
    """Return the arguments that `pack` packed."""
    args = []
    at = 0
    for _ in range(packed.count):
        begin = packed.data.index(b"\r\n", at) + 2
        at = begin + int(packed.data[at + 1 : begin])
        args.append(packed.data[begin:at])
        at += 2
    return args


def command(parts: Iterable[Packed]) -> bytes:
    """Join packed parts into one command that can be written to a socket."""
    total = 0
    runs = [b""]
    for run in parts:
        total += run.count
        runs.append(run.data)
    runs[0] = b"*%d\r\n" % total
    return b"".join(runs)
