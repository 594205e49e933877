"""The generator that derives the blocking client from the asyncio client: `make blocking`.

The modules of `rota.client.aio` that do not handle connections are written once, with `await`. This generator copies
each of them to `rota.client.blocking`, removes `await`, and replaces names. Only the code that handles connections is
written twice.
"""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from support.prose import ROOT

CLIENT: Final = ROOT / "workers/rota/client"
MODULES: Final = ("client", "flows", "handles", "schedules", "administration")
_RUFF: Final = Path(sys.executable).with_name("ruff")

_TEXTS: Final[Mapping[str, Mapping[str, str]]] = {
    "client": {
        """An asyncio client for one namespace of one server.

    It takes the same arguments as `Client`, except that `redis` is a client for asyncio, such as `redis.asyncio.Redis`.
    All asyncio tasks of an event loop share one connection for commands and a second one for waits. The client belongs
    to the event loop that uses it first. Another loop may use it only after the first loop is closed. Close the client
    with `aclose`, or use it as an async context manager:

        async with rota.AsyncClient("redis://localhost:6379/0") as client:
            handle = await client.enqueue(resize.call(7))
""": """A client for one namespace of one server. Thread-safe, and safe to use after a fork.

    `redis_url` names the server. Instead, `redis` can be the application's own client of redis-py or valkey-py: a
    `redis.Redis`, the result of `Sentinel.master_for`, a connection pool, or a `RedisCluster`. Then each call borrows a
    connection from its pool. Close the client when it is no longer needed, or use it as a context manager:

        with rota.Client("redis://localhost:6379/0") as client:
            handle = client.enqueue(resize.call(7))

    * `max_payload_kb` limits the body of one task, in KiB.
    * `timeout_seconds` limits each call as a whole, including connecting and all requests. In `enqueue_many`, it
      applies to each round of 4,000 tasks separately.
    * `durability` is what an enqueue waits for besides the server's reply: "none", "wait" (a replica has the task) or
      "waitaof" (the task is on disk).
    * `redis_tls_ca`, `redis_tls_cert` and `redis_tls_key` are PEM files for a `rediss://` URL: the certificates of the
      authorities to trust, instead of the system's, and the certificate and key of the client, if the server requests a
      certificate.
    * `redis_credentials` is a function without arguments that returns the user, the password and the time when they
      expire, an object with `get_credentials()` as in redis-py, or the import path of either, in the form
      "module:name". It is called again before that time, and when the server refuses the user or the password.
    * `signing_keys` are the keys with which tasks are signed and verified, by name: `file:PATH`, `env:NAME`, or the
      key itself, as bytes. `sign_with` is the name of the key that signs. With `signing_required`, consumers of this
      client refuse tasks without a signature.
    * `on_commit` delays each enqueue until a transaction is committed: see `Task.using`.
""",
        """
        The call is sent before this method returns, so sending cannot wait for a commit. If a transaction is open, and
        `on_commit` therefore does not call back at once, nothing is sent and RuntimeError is raised.

        If the await is cancelled, CancelledError has a cause: Uncertain if the call was sent, and Unavailable if it was
        not. `Uncertain.behind` returns that Uncertain, and its `arepeat` repeats the call exactly.
""": """
        `on_commit` is called with a callback, and the call is sent when that callback is called, for example after a
        transaction is committed: see `Task.using`.
""",
        """See `AsyncConsumer`. The consumer registers at the start of an `async with` block:
""": """See `Consumer`. The consumer registers at once:
""",
        """            ValueError: If `limit` or `lease_seconds` is out of range.
""": """            ValueError: If `limit` or `lease_seconds` is out of range.
            Unavailable: If the server cannot be reached or refuses the call.
            Uncertain: If the server did not reply in time.
""",
        """Follow task events with `async for`, optionally only events of one queue or of one task name.

        The reader has its own connection. `async with` determines the position to start from, or raises one of the
        errors below. Without `async with`, this happens when the first event is requested:
""": """Follow task events with `for`, optionally only events of one queue or of one task name.

        The reader has its own connection. This call determines the position to start from, or raises one of the
        errors below:
""",
    },
}
"""For each module, phrases of its docstrings about asyncio, and their replacements."""

_WORDS: Final = (
    (re.compile(r"\basync (?=def |with |for )"), ""),
    (re.compile(r"\bawait "), ""),
    (re.compile(r"\b__a(enter|exit)__\b"), r"__\1__"),
    (re.compile(r"\brota\.client\.aio\.(consumer|event_stream)\b"), r"rota.client.\1"),
    (re.compile(r"\brota\.client\.aio\b"), "rota.client.blocking"),
    (re.compile(r"\bAsync(?=[A-Z])"), ""),
)


def source_of(module: str) -> Path:
    """Return the path of the handwritten module."""
    return CLIENT / "aio" / f"{module}.py"


def target_of(module: str) -> Path:
    """Return the path of the generated module."""
    return CLIENT / "blocking" / f"{module}.py"


def blocking(module: str) -> str:
    """Return the text of the blocking module. Raises ValueError if the source lacks a text that must be replaced."""
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
