"""Text as somebody writes it who wants to mislead a person that looks at it."""

import re

# Not the newline: it may end a line. Of the other blanks only the space is one on every terminal.
_CONTROLS = "".join(map(chr, [*range(10), *range(11, 32), *range(127, 160)]))
_DIRECTIONS = "\u061c\u200e\u200f" + "".join(map(chr, [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]))
_OTHERS = "\u00a0\u00ad\u200b\u2028\u2029\ufeff\U000e0041"
_SURROGATES = "\udc9b\udfff\ud800"  # in this order no two of them are a pair
UNFIT = _CONTROLS + _DIRECTIONS + _OTHERS + _SURROGATES
MARKUP = '[red]x[/red] [link=file:///etc]y[/link] <b onclick=\'z\'>&amp;</b> "quoted" \\ {a="b"}'
HOSTILE = f"before \x1b]0;title\x07\x1b[2J\x9b31m\r\u202edetrevni\u2066 {UNFIT} {MARKUP} bücher 本 after"
VALID = "".join(letter for letter in HOSTILE if letter not in _SURROGATES)  # what UTF-8 can say of it

_SEEN = re.compile(f"[{re.escape(UNFIT)}]")
_COLORS = re.compile(r"\x1b\[[0-9;]*m")


def unfit_in(text: str, *, colored: bool = False) -> str:
    """The letters of a text that should not be where somebody sees it, but for the colors of a renderer."""
    return "".join(_SEEN.findall(_COLORS.sub("", text) if colored else text))
