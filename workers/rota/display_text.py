"""Functions that make text from outside safe to display: `redact` hides secrets, and `printable` escapes control
characters.

`redact` shows only the parts of a value that cannot belong to a secret.

A person who mistypes a URL may put the password anywhere: in place of the port, the database or an option, before an
`@`, without an `@`, or under another key. So a URL is shown from left to right as long as its parts are recognized, and
ends in `***` at the first part that is not. `redact` does not try to recognize secrets.

`printable` escapes all characters that `str.isprintable` rejects: control characters, characters that set the direction
of writing, separators of lines and paragraphs, halves of surrogate pairs, invisible and unassigned characters, and
white space other than the space. So no displayed text can move the cursor, ring the bell, color the terminal, hide
itself, or reorder the text beside it. Escapes are written as in JSON (`\\u001b`, `\\n`), so an escaped JSON document is
still valid JSON with the same data.
"""

import re
from json.encoder import encode_basestring_ascii
from typing import Final

HIDDEN: Final = "***"
# The names of options of well-known clients. Any other text is not treated as an option, because it may be the rest of
# a password that contains a ? or an &.
OPTIONS: Final = frozenset(
    {
        *("client_name", "db", "decode_responses", "encoding", "encoding_errors", "health_check_interval"),
        *("max_connections", "password", "protocol", "retry_on_error", "retry_on_timeout"),
        *("sentinel_password", "sentinel_username", "socket_connect_timeout", "socket_keepalive", "socket_timeout"),
        *("ssl", "ssl_ca_certs", "ssl_ca_data", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile"),
        *("ssl_check_hostname", "ssl_keyfile", "timeout", "username"),
    }
)
_SCHEME: Final = re.compile(r"([a-z][a-z+.-]{1,20})://", re.IGNORECASE)
_USER: Final = re.compile(r"[\w.-]*")
_HOST: Final = r"(?:[\w.-]+|\[[0-9a-f:.%]+\])(?::[0-9]{1,5})?(?=[:/?#,]|\Z)"
_DATABASE: Final = r"/(?:[0-9]{1,5}(?=[?#]|\Z))?"
_OPTIONS: Final = rf"(?:\?(?:db=[0-9]{{1,5}}(?:&|\Z))*(?:(?:{'|'.join(sorted(OPTIONS))})=)?)?"
# For each kind of URL, the parts after the credentials that are recognized and shown.
_ONE_SERVER: Final = re.compile(rf"(?:{_HOST})?(?:{_DATABASE})?{_OPTIONS}:?", re.IGNORECASE)
_SENTINELS: Final = re.compile(
    rf"(?:{_HOST}(?:,{_HOST})*(?:/[\w.-]*(?=[/?#]|\Z))?(?:{_DATABASE})?{_OPTIONS})?[:,]?", re.IGNORECASE
)
_NODES: Final = re.compile(rf"(?:{_HOST}(?:,{_HOST})*(?:{_DATABASE})?{_OPTIONS})?[:,]?", re.IGNORECASE)
_SOCKET: Final = re.compile(rf"(?:/[^?#]*{_OPTIONS})?")
_REST: Final = {
    "redis": _ONE_SERVER,
    "rediss": _ONE_SERVER,
    "redis+sentinel": _SENTINELS,
    "rediss+sentinel": _SENTINELS,
    "redis+cluster": _NODES,
    "rediss+cluster": _NODES,
    "unix": _SOCKET,
}
# A URL whose "://" is missing or incomplete. Only a scheme, a local host, a port and a database are recognized.
_NEARLY: Final = re.compile(
    r"(?:(?:rediss?|valkeys?|unix)(?::/?|//))?"
    r"(?:(?:localhost|127\.0\.0\.1)(?::[0-9]{1,5})?(?=/|\Z)(?:/[0-9]{1,2}\Z)?)?",
    re.IGNORECASE,
)
_NOTHING: Final = re.compile("")
_PAIR: Final = re.compile(r"@|:(?![0-9]{1,5}\Z)")
_CREDENTIALS: Final = re.compile(r"://|//.*@|\A[^/]*:.*@", re.DOTALL)


def redact(url: str) -> str:
    """Return the URL for logs and messages. Everything that could be a secret is replaced by `***`: the password, the
    values of options, and all text that is not part of a Redis URL."""
    found = _SCHEME.match(url)
    if found is None:
        return _without_scheme(url)
    after = url[found.end() :]
    credentials, at, rest = ("", "", after) if after.startswith("/") else after.rpartition("@")
    if set("/?#") & set(credentials):  # the last @ may be part of a password in a later part of the URL
        return found[0] + HIDDEN
    known = _REST.get(found[1].lower(), _NOTHING).match(rest)
    assert known is not None
    return found[0] + _credentials(credentials) + at + known[0] + HIDDEN * (known.end() < len(rest))


def _without_scheme(text: str) -> str:
    """Redact a text that has no `://`. Only those parts are shown that can belong to a URL such as `localhost:6379`."""
    known = _NEARLY.match(text)
    if not (known and known[0]) or "@" in text:
        return HIDDEN
    return known[0] + HIDDEN * (known.end() < len(text))


def _credentials(text: str) -> str:
    user, colon, password = text.partition(":")
    if not text or (password and _USER.fullmatch(user)):
        return f"{user}{colon}{HIDDEN}" if text else ""
    return HIDDEN  # there is no ":password", so the colon may be missing or misplaced, and this may be the password


def may_hold_credentials(text: str) -> bool:
    """Whether a text that should contain no credentials contains a URL, or a part such as `user:password@host`."""
    return _CREDENTIALS.search(text) is not None


def quoted(text: str) -> str:
    """Return a text in quotes, or `***` if the text may contain a secret.

    This is assumed if the text has an '@', or a ':' that is not followed by a port.
    """
    return HIDDEN if _PAIR.search(text) else f'"{text}"'


_NO_PLAIN_ASCII: Final = re.compile(r"[^ -~]")
_DELETE: Final = "\x7f"  # the only ASCII control character that JSON does not escape


def printable(text: str) -> str:
    """Return the text on one line, with every character escaped that `str.isprintable` rejects."""
    return text if text.isprintable() else _NO_PLAIN_ASCII.sub(_spelled, text)


def printable_lines(text: str) -> str:
    """Return a multi-line text with each of its lines made printable."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def printable_json(document: str) -> str:
    """Return a JSON document on one line, made printable.

    JSON escapes all control characters except DEL, so in an ASCII document, this searches only for DEL. That takes 0.1
    us for 600 characters, while `printable` would take 5 us.
    """
    return document if document.isascii() and _DELETE not in document else printable(document)


def _spelled(found: re.Match[str]) -> str:
    letter = found[0]
    return letter if letter.isprintable() else encode_basestring_ascii(letter)[1:-1]
