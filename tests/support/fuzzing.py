"""Malformed entries of a queue: bodies of tasks that are damaged, or whose values no client would write."""

import json
import random
from collections.abc import Iterator
from typing import Any, Final

_BODIES: Final[list[list[Any]]] = [
    ["id-1", "default", "note", ["fuzzed"]],
    ["id-2", "default", "note", [], {"kwargs": {"label": "fuzzed"}, "options": {"retries": 1}}],
    ["id-3", None, "note", [], {"kwargs": {}, "options": {}, "traceparent": "00-0-0-01"}],
    ["note", ["fuzzed"]],
]
_NAMES: Final = [
    "os.system",
    "__import__",
    "builtins.eval",
    "note.__call__",
    "../note",
    "Note",
    "note\n",
    "",
    "n" * 300,
]
_VALUES: Final[list[Any]] = [
    *(None, True, False, 0, -1, 1e308, -1e-308, 2**63, -(2**70), 10**400, 0.1),
    *("", "\x00", "\ud800", "é" * 500, "a" * 5000, "{}", "*", "default"),
    *([], {}, [[]], [{}], {"": ""}, {"__class__": "x"}, {"kwargs": {"label": 1}}, {"options": {"time_limit": -1}}),
    *({"options": {"retries": 10**30, "not_before": "x"}}, {"options": {"not_before": 2**64}}, {"options": [1]}),
]
_PIECES: Final = [
    *(b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\\u0000", b"\\ud800", b"NaN", b"-Infinity", b"1e999", b"0" * 5000),
    *(b"[" * 200, b'{"a":' * 200, b"]", b"}", b'"', b",", b" ", b"\r\n", b"*3\r\n", b" first ", b" first " + b"0" * 64),
]


def bodies(seed: int, count: int) -> Iterator[bytes]:
    """Yield `count` malformed bodies of tasks. The same seed gives the same bodies."""
    rng = random.Random(seed)
    for _ in range(count):
        yield _damaged(rng, _replaced(rng)) if rng.random() < 0.7 else _replaced(rng)


def ids(seed: int, count: int) -> Iterator[bytes]:
    """Yield ids of tasks, most of which no client would accept."""
    rng = random.Random(seed)
    for number in range(count):
        kind = rng.randrange(4)
        yield f"fuzz-{number}".encode() if kind else rng.randbytes(rng.randrange(1, 300))


def _replaced(rng: random.Random) -> bytes:
    """Return a task body as JSON, in which some values are replaced by unusual ones."""
    body = list(rng.choice(_BODIES))
    for place in range(len(body)):
        if rng.random() < 0.3:
            body[place] = rng.choice(_NAMES) if rng.random() < 0.3 else rng.choice(_VALUES)
    return json.dumps(body, ensure_ascii=rng.random() < 0.5).encode(errors="surrogatepass")


def _damaged(rng: random.Random, text: bytes) -> bytes:
    """Return the text after a few random changes of its bytes."""
    damaged = bytearray(text)
    for _ in range(rng.randrange(1, 4)):
        begin = rng.randrange(len(damaged) + 1)
        end = min(len(damaged), begin + rng.randrange(8))
        match rng.randrange(4):
            case 0:
                damaged[begin:end] = rng.choice(_PIECES)
            case 1:
                damaged[begin:end] = rng.randbytes(end - begin)
            case 2:
                del damaged[begin:end]
            case _:
                damaged[begin:begin] = damaged[begin:end]
    return bytes(damaged)
