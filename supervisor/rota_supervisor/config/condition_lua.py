"""The Lua of a condition: which texts are let through, each with the place of what is wrong with it.

Redis cannot interrupt a script, so a condition is made of nothing that takes time: `local`, `if`, `return`, operators,
and five functions of `math`. There is no loop, no other call, no table and no joining of texts. So its length bounds
what it costs, and it reaches nothing but the names that it is given. What is let through is Lua, and means what it
means there. It is sent without its comments, line for line, so that errors name the lines of the text.
"""

import re
from typing import Final, NamedTuple

from rota.display_text import printable
from rota.protocol.tiers import MOST_CONDITION_CHARACTERS

GIVEN: Final = ("queue", "ready", "delayed", "running", "now")
FUNCTIONS: Final = ("floor", "ceil", "min", "max", "abs")
_LIBRARY: Final = "math"
_WORDS: Final = frozenset(
    ("and", "else", "elseif", "end", "false", "if", "local", "nil", "not", "or", "return", "then", "true")
)
_REFUSED: Final = frozenset(("break", "do", "for", "function", "goto", "in", "repeat", "until", "while"))
_BINARY: Final = frozenset(("and", "or", "==", "~=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%"))
_UNARY: Final = frozenset(("not", "-"))
_STATEMENTS: Final = frozenset(("local", "if", "return"))
_BLOCK_ENDS: Final = frozenset(("end", "else", "elseif", ""))
# Lua's own bounds are 200 levels, 200 locals and 250 values at once: what is let through must not meet them.
_MOST_LEVELS: Final = 20
_MOST_LOCALS: Final = 100
_MOST_ARGUMENTS: Final = 50
_NOT_ALLOWED: Final = (
    f"is nothing that a condition may hold: it is made of local, if and return, operators but .. and ^, and "
    f"math.{', math.'.join(FUNCTIONS)}"
)
_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|--(?!\[)[^\n]*)
    |(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.]))
    |(?P<name>[A-Za-z_]\w*)
    |(?P<text>"[^"\\\n]*"|'[^'\\\n]*')
    |(?P<sign>==|~=|<=|>=|[-+*/%<>=(),;]|\.(?!\.))""",
    re.ASCII | re.VERBOSE,
)


class _Token(NamedTuple):
    kind: str
    text: str
    line: int
    column: int

    def fault(self, what: str) -> ValueError:
        return ValueError(f"line {self.line}, character {self.column}: {what}")

    @property
    def shown(self) -> str:
        return f'"{printable(self.text)}"' if self.text else "the end"


def check_chunk(text: str) -> str:
    """The chunk as it is sent; a text that is an expression returns it. Raises ValueError with the place."""
    tokens = _tokens(text)
    if tokens[0].text not in _STATEMENTS:
        tokens.insert(0, _Token("name", "return", 1, 1))
    _Parser(tokens).parse()
    sent = _joined(tokens)
    if len(sent) > MOST_CONDITION_CHARACTERS:
        raise ValueError(f"expected at most {MOST_CONDITION_CHARACTERS} characters without comments, got {len(sent)}")
    return sent


def _tokens(text: str) -> list[_Token]:
    tokens, at, line, line_at = list[_Token](), 0, 1, 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            wrong = _Token("", text[at], line, at - line_at + 1)
            raise wrong.fault(f"{wrong.shown} {_NOT_ALLOWED}")
        if match.lastgroup != "space":
            tokens.append(_Token(match.lastgroup, match[0], line, at - line_at + 1))
        if lines := match[0].count("\n"):
            line, line_at = line + lines, at + match[0].rindex("\n") + 1
        at = match.end()
    return [*tokens, _Token("", "", line, at - line_at + 1)]


def _joined(tokens: list[_Token]) -> str:
    text, line = "", 1
    for token in tokens:
        text += "\n" * (token.line - line) if token.line > line else " " * bool(text)
        text, line = text + token.text, token.line
    return text.rstrip()


class _Parser:
    """Descends through the tokens once. `_scopes`: the names of each block that is open."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._scopes: list[set[str]] = [set(GIVEN)]
        self._levels = 0
        self._locals = 0

    def parse(self) -> None:
        self._block()
        if self._next.text:
            raise self._next.fault(f"expected the end, got {self._next.shown}")

    # Blocks

    def _block(self) -> None:
        self._deeper()
        self._scopes.append(set())
        while self._next.text not in _BLOCK_ENDS:
            is_last = self._statement()
            self._accept(";")
            if is_last and self._next.text not in _BLOCK_ENDS:
                raise self._next.fault(f"nothing may follow return in its block, got {self._next.shown}")
        self._scopes.pop()
        self._levels -= 1

    def _statement(self) -> bool:
        """Whether it was the last one of its block."""
        token = self._next
        if self._accept("return"):
            self._expression()
        elif self._accept("local"):
            self._local()
        elif self._accept("if"):
            self._if()
        else:
            raise token.fault(self._refusal(token) or f"expected local, if or return, got {token.shown}")
        return token.text == "return"

    def _local(self) -> None:
        name = self._take()
        if name.kind != "name" or name.text in _WORDS | _REFUSED | {_LIBRARY}:
            raise name.fault(f"expected a name, got {name.shown}")
        self._locals += 1
        if self._locals > _MOST_LOCALS:
            raise name.fault(f"expected at most {_MOST_LOCALS} locals")
        self._expect("=")
        self._expression()
        self._scopes[-1].add(name.text)

    def _if(self) -> None:
        self._branch()
        while self._accept("elseif"):
            self._branch()
        if self._accept("else"):
            self._block()
        self._expect("end")

    def _branch(self) -> None:
        self._expression()
        self._expect("then")
        self._block()

    # Expressions: which operator binds how is for Lua to say

    def _expression(self) -> None:
        self._operand()
        while self._next.text in _BINARY:
            self._at += 1
            self._operand()

    def _operand(self) -> None:
        self._deeper()
        token = self._take()
        if token.text in _UNARY:
            self._operand()
        elif token.text == "(":
            self._expression()
            self._expect(")")
        elif token.text == _LIBRARY:
            self._call()
        elif not self._is_value(token):
            raise token.fault(self._refusal(token) or f"expected a value, got {token.shown}")
        self._levels -= 1

    def _is_value(self, token: _Token) -> bool:
        if token.kind == "name":
            return token.text in {"true", "false", "nil"} or any(token.text in names for names in self._scopes)
        return token.kind in {"number", "text"}

    def _call(self) -> None:
        self._expect(".")
        function = self._take()
        if function.text not in FUNCTIONS:
            raise function.fault(f"expected one of {', '.join(FUNCTIONS)} of math, got {function.shown}")
        opened = self._expect("(")
        self._expression()
        arguments = 1
        while self._accept(","):
            self._expression()
            arguments += 1
        self._expect(")")
        if arguments > _MOST_ARGUMENTS:
            raise opened.fault(f"expected at most {_MOST_ARGUMENTS} arguments, got {arguments}")

    # Tokens

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._next
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _accept(self, text: str) -> bool:
        is_there = self._next.text == text
        if is_there:
            self._take()
        return is_there

    def _expect(self, text: str) -> _Token:
        token = self._take()
        if token.text != text:
            raise token.fault(f'expected "{text}", got {token.shown}')
        return token

    def _deeper(self) -> None:
        self._levels += 1
        if self._levels > _MOST_LEVELS:
            raise self._next.fault(f"more than {_MOST_LEVELS} levels in each other")

    def _refusal(self, token: _Token) -> str:
        if token.text in _REFUSED:
            return f"{token.shown} {_NOT_ALLOWED}"
        if token.kind == "name" and token.text not in _WORDS:
            return f"{token.shown} is not known here: a condition knows {', '.join(GIVEN)}, math, and its own locals"
        return ""
