"""The signatures of tasks and schedules. A valid signature proves that the text was written by a program that has the
key.

A signed text is `TEXT KEY MAC`. KEY is the name of a key. MAC is the HMAC-SHA256 (RFC 2104) of `rota KIND KEY`, a line
feed, and TEXT, as 64 hexadecimal digits. KIND is `task` for the body of a task, and `schedule NAME` for the text of a
schedule. The text itself is JSON, so it ends with a bracket, and a signature cannot be mistaken for a part of it.

A body contains the task's id, queue, name, arguments and options. The body of a task that was enqueued for a later time
also contains that time. This module does no I/O; `rota.tasks.keyring` reads the keys.
"""

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

TASK: Final = b"task"
NOT_BEFORE: Final = "not_before"
"""The field of a signed body with the time before which the task must not start, in Unix time in microseconds."""

KEY_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
MOST_SIGNATURE_BYTES: Final = 130  # two spaces, the longest name of a key, and the MAC
_MAC: Final = re.compile(rb"[0-9a-f]{64}")
_PARTS: Final = 3
_CLOSING: Final = (b"]", b"}")


class SignatureError(ValueError):
    """Raised for a text that must not be used, because its signature is missing or wrong. The message is the reason."""


@dataclass(frozen=True, slots=True)
class SigningSettings:
    """The keys with which tasks and schedules are signed and verified. Without keys, signatures are ignored."""

    # The keys by name. A key is `file:PATH` or `env:NAME`; an application may also pass the key itself, as bytes.
    keys: Mapping[str, str | bytes] = field(default_factory=dict, repr=False)
    sign_with: str = ""  # the name of the key that signs
    required: bool = False  # whether a task without a signature becomes dead


def schedule_kind(name: str) -> bytes:
    """Return `schedule NAME`. The name is signed too, so that the text cannot be used for another schedule."""
    return b"schedule " + name.encode("utf-8", "surrogateescape")


class SigningKey:
    """A named key. The key is hashed only once, which halves the time to compute a signature."""

    def __init__(self, name: str, key: bytes) -> None:
        self.name = name.encode()
        self._keyed = hmac.new(key, digestmod="sha256")
        self._for_tasks = self._begin(TASK)

    def sign(self, text: bytes, kind: bytes) -> bytes:
        """Return the text with a signature."""
        return b"%b %b %b" % (text, self.name, self.mac(text, kind))

    def mac(self, text: bytes, kind: bytes) -> bytes:
        """Return the MAC of a text in hexadecimal digits."""
        mac = self._for_tasks.copy() if kind is TASK else self._begin(kind)
        mac.update(text)
        return mac.hexdigest().encode()

    def _begin(self, kind: bytes) -> hmac.HMAC:
        mac = self._keyed.copy()
        mac.update(b"rota %b %b\n" % (kind, self.name))
        return mac


def verify(raw: bytes, kind: bytes, keys: Mapping[bytes, SigningKey]) -> tuple[bytes, bool]:
    """Return the text without its signature, and whether it has one. `keys`: the keys by name.

    Raises SignatureError if the signature is wrong, or if its key is not in `keys`.
    """
    parts = _split(raw)
    if parts is None:
        return raw, False
    text, name, mac = parts
    key = keys.get(name)
    if key is None:
        shown = ascii(name[:64].decode("latin-1"))
        raise SignatureError(f"it is signed with the key {shown}, which is not one of the signing keys here")
    if not hmac.compare_digest(key.mac(text, kind), mac):
        raise SignatureError(
            f"its signature with the key {name.decode()!r} is wrong: it was changed after it was signed, or the key is "
            "not the same everywhere"
        )
    return text, True


def without_signature(raw: bytes) -> bytes:
    """Return a text without its signature, which is not verified. A text without a signature is returned unchanged."""
    if raw[-1:] in _CLOSING:
        return raw
    parts = _split(raw)
    return raw if parts is None else parts[0]


def _split(raw: bytes) -> tuple[bytes, bytes, bytes] | None:
    parts = raw.rsplit(b" ", _PARTS - 1)
    if len(parts) != _PARTS or not _MAC.fullmatch(parts[2]):
        return None
    return parts[0], parts[1], parts[2]
