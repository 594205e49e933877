"""Makes the client that blocks of the one on asyncio: `make blocking`.

The modules of `rota.client.aio` that decide nothing about connections are written once, with `await`. Each is copied to
`rota.client.blocking` without it, under the names that callers use there. What drives the connections is written twice.
"""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from support.prose import ROOT

CLIENT: Final = ROOT / "workers/rota/client"
MODULES: Final = ("client", "flows", "handles", "schedules")
_RUFF: Final = Path(sys.executable).with_name("ruff")

_TEXTS: Final[Mapping[str, Mapping[str, str]]] = {
    "client": {
        """One connection to one namespace of one server, for all tasks of one event loop; waits have one more.

    The arguments are those of `Client`; `redis` is a client of asyncio, such as `redis.asyncio.Redis`. It belongs to
    the event loop that uses it first, and to another one only when that was closed. `await aclose()`, or use it as an
    async context manager, when it is not needed any more.
""": """A connection pool to one namespace of one server. Thread-safe, and safe to use after a fork.

    The server is named by `redis_url`. Or `redis` is a client of the application, of redis-py or valkey-py: a
    `redis.Redis`, what `Sentinel.master_for` returns, a connection pool, or a `RedisCluster`. Then each call borrows a
    connection of its pool.

    `max_payload_kb` bounds one task's body, in KiB. `timeout_seconds` bounds each call in all, whatever it takes to
    connect and however often it asks; of `enqueue_many` each 4,000 tasks. `durability`: what an enqueue waits for
    beyond the server's answer, "none", "wait" (a replica has the task) or "waitaof" (it is on disk). For a `rediss://`
    URL, files of PEM: `redis_tls_ca` holds the certificates of the authorities to trust, instead of the system's;
    `redis_tls_cert` and `redis_tls_key` are what the client shows a server that asks for a certificate.
    `redis_credentials`: a function without arguments that returns user and password, and when they expire, or an object
    with `get_credentials()` as redis-py has it, or where either is, as in "module:name". It is called again ahead of
    that time, and when the server refuses what it gave. Close the client, or use it as a context manager, when it is
    not needed any more.
""",
        """
        It is sent before it returns, and so waits for no commit: where `on_commit` does not call back at once, it sends
        nothing and raises RuntimeError.

        Cancelled, it goes on as CancelledError, whose cause is Uncertain when it was sent (`Uncertain.behind` finds it,
        and it can be repeated exactly), and Unavailable when it was not.
""": """
        `on_commit` is called with a callback that sends the call, for when a transaction is committed: see `using`.
""",
        """Take tasks of these queues with `async with` and `async for`, at most `limit` (up to 500) at a time: see
        `AsyncConsumer`. It is registered when it is entered.

        What it holds goes elsewhere when it was stopped, or cut off from the server, for `lease_seconds` (at least 1).
        Raises InvalidName, TypeError or ValueError.
""": """Take tasks of these queues in this process, at most `limit` (up to 500) at a time: see `Consumer`.

        What it holds goes elsewhere when it was stopped, or cut off from the server, for `lease_seconds` (at least 1).
        Raises InvalidName, TypeError or ValueError; Unavailable or Uncertain when it cannot be registered.
""",
        """Follow task events on a connection of its own, with `async for`, of one queue or one task if that is named.

        It begins at its place, or raises why it cannot, when it is entered with `async with`, else at the first event.
""": """Follow the task events of the fleet, of one queue or one task if that is named, on a connection of its own.
""",
    },
}
"""Of each module what its docstrings say of asyncio alone, and what they say instead."""

_WORDS: Final = (
    (re.compile(r"\basync (?=def |with |for )"), ""),
    (re.compile(r"\bawait "), ""),
    (re.compile(r"\b__a(enter|exit)__\b"), r"__\1__"),
    (re.compile(r"\brota\.client\.aio\.(consumer|event_stream)\b"), r"rota.client.\1"),
    (re.compile(r"\brota\.client\.aio\b"), "rota.client.blocking"),
    (re.compile(r"\bAsync(?=[A-Z])"), ""),
)


def source_of(module: str) -> Path:
    """Return the module that is written by hand."""
    return CLIENT / "aio" / f"{module}.py"


def target_of(module: str) -> Path:
    """Return the module that is made of it."""
    return CLIENT / "blocking" / f"{module}.py"


def blocking(module: str) -> str:
    """Return the text of the module that blocks. Raises ValueError if a text to be replaced is not there."""
    text = source_of(module).read_text(encoding="utf-8")
    for awaited, blocks in _TEXTS.get(module, {}).items():
        if text.count(awaited) != 1:
            raise ValueError(f"{source_of(module)}: expected once, found {text.count(awaited)} times: {awaited!r}")
        text = text.replace(awaited, blocks)
    for pattern, word in _WORDS:
        text = pattern.sub(word, text)
    head = f"# Generated from rota/client/aio/{module}.py by `make blocking`: change that, not this.\n"
    return _tidied(f"{head}{text}", target_of(module))


def _tidied(text: str, path: Path) -> str:
    for arguments in (["check", "--fix-only", "--select", "I,F401,RET504,UP034"], ["format"]):
        command = [str(_RUFF), *arguments, "--quiet", "--stdin-filename", str(path), "-"]
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text


if __name__ == "__main__":
    for name in MODULES:
        target_of(name).write_text(blocking(name), encoding="utf-8")
