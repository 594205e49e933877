"""Hostile text that is meant to mislead its readers."""

import re

# The newline is not included, because it may end a line. Other whitespace than the space is included, because terminals
# differ in how they show it.
_CONTROLS = "".join(map(chr, [*range(10), *range(11, 32), *range(127, 160)]))
_DIRECTIONS = "\u061c\u200e\u200f" + "".join(map(chr, [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]))
_OTHERS = "\u00a0\u00ad\u200b\u2028\u2029\ufeff\U000e0041"
_SURROGATES = "\udc9b\udfff\ud800"  # in this order, no two surrogates form a pair
UNFIT = _CONTROLS + _DIRECTIONS + _OTHERS + _SURROGATES
MARKUP = '[red]x[/red] [link=file:///etc]y[/link] <b onclick=\'z\'>&amp;</b> "quoted" \\ {a="b"}'
HOSTILE = f"before \x1b]0;title\x07\x1b[2J\x9b31m\r\u202edetrevni\u2066 {UNFIT} {MARKUP} bücher 本 after"
VALID = "".join(letter for letter in HOSTILE if letter not in _SURROGATES)  # the part that UTF-8 can encode

_SEEN = re.compile(f"[{re.escape(UNFIT)}]")
_COLORS = re.compile(r"\x1b\[[0-9;]*m")


def unfit_in(text: str, *, colored: bool = False) -> str:
    """Return all characters in this text that a program must not display, such as control characters. If `colored` is
    set, escape sequences for colors are permitted.
    """
    return "".join(_SEEN.findall(_COLORS.sub("", text) if colored else text))
