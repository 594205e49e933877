"""The scrubber, which replaces secrets with `***` in everything that goes into a support archive.

Secrets are found in two ways. *Known* secrets are read from the configuration, the files that it names and the
environment. Every occurrence of such a secret is replaced, however it is escaped. In addition, everything that *looks
like* a secret is replaced: passwords in URLs, bearer tokens, private keys, and values with a name such as `password` or
`api_key`.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, quote_plus, unquote

from rota.display_text import HIDDEN, printable

LEAST_CHARACTERS: Final = 3  # a shorter secret cannot be distinguished from ordinary text
_WHOLE_WORD_CHARACTERS: Final = 8  # a shorter secret is replaced only where it is a whole word
_NAMES: Final = (
    r"passw(?:or)?d|passphrase|(?<=[_.-])pwd|secret|token|credential|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|encryption[_-]?key|signing[_-]?key|authorization|cookie|dsn|masterauth|requirepass"
)
# The names of settings that are not secrets, because their value is the path of a file or the name of a module.
_PATHS: Final = r"[\w.-]*(?:_file|_path)\b|redis_credentials\b|tls_key\b|redis_tls_key\b"
_SECRET_NAME: Final = re.compile(rf"(?!{_PATHS})[\w.-]*(?:{_NAMES})s?[\w.-]*", re.IGNORECASE)
_NO_SECRETS: Final = frozenset({"", "true", "false", "yes", "no", "on", "off", "none", "null"})
_RANDOM: Final = re.compile(r"(?=\S*[A-Za-z])(?=\S*\d)\S{12,}")
# A value in one of three forms: in quotes, of which the closing one may have been cut off; in escaped quotes, because
# the value is in a JSON text; or without quotes.
_VALUE: Final = (
    r"""(?:"(?:[^"\\\n]|\\.)*"?|\\"(?:[^"\\\n]|\\(?!").)*(?:\\")?|'[^'\n]*'?"""
    r"""|(?:(?:bearer|basic|token)\s+)?[^\s"',;&)}\]\\]+)"""
)
_PAIR: Final = re.compile(
    rf"""(?<![\w.-])({_SECRET_NAME.pattern}(?:\\?["'])?\s*[:=]\s*)(?!\s|\\?["']?\*\*\*){_VALUE}""", re.IGNORECASE
)
_BEARER: Final = re.compile(r"\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
_URL: Final = re.compile(r"""([a-z][a-z0-9+.-]*://)([^\s/@"'<>:]*)(?::([^\s"'<>]*))?@""", re.IGNORECASE)
_KEY_BEGINS: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_KEY_ENDS: Final = re.compile(r"-----END [A-Z ]*PRIVATE KEY-----")
_PRIVATE_KEY: Final = re.compile(rf"{_KEY_BEGINS.pattern}.*?(?:{_KEY_ENDS.pattern}|\Z)", re.DOTALL)
# The formats of well-known tokens: JSON Web Tokens, AWS, GitHub, Slack, Stripe.
_TOKEN: Final = re.compile(
    r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[opsur]_\w{30,}|\bxox[abp]-[\w-]{10,}"
    r"|\bsk_(?:live|test)_\w{16,}"
)


class Scrubber:
    """A scrubber for texts and JSON documents."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if len(secret) >= LEAST_CHARACTERS for form in _forms_of(secret)}
        ordered = sorted(forms, key=len, reverse=True)
        self._known = re.compile("|".join(map(_pattern_of, ordered))) if ordered else None

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        text = _PRIVATE_KEY.sub(HIDDEN, text)
        text = _URL.sub(_without_password, text)
        text = _PAIR.sub(rf"\1{HIDDEN}", text)
        text = _BEARER.sub(rf"\1\2{HIDDEN}", text)
        return _TOKEN.sub(HIDDEN, text)

    def values(self, values: Any) -> Any:
        """Return JSON values without secrets. A value under a name such as `password` is replaced, and secrets in all
        other texts are replaced too."""
        if isinstance(values, Mapping):
            return {
                self.text(str(key)): HIDDEN if is_secret_name(str(key)) and _is_plain(value) else self.values(value)
                for key, value in values.items()
            }
        if isinstance(values, list | tuple):
            return [self.values(each) for each in values]
        return self.text(values) if isinstance(values, str) else values

    def document(self, values: Any) -> str:
        """Return values as an indented JSON document without secrets."""
        plain = json.loads(json.dumps(values, default=str))
        return json.dumps(self.values(plain), ensure_ascii=False, indent=1) + "\n"

    def lines(self, text: str) -> str:
        """Return the lines of a log without secrets. A JSON line remains valid JSON.

        A private key that was logged in several lines is replaced, together with everything that was logged between
        these lines.
        """
        cleaned = []
        is_in_key = False
        for line in text.splitlines():
            is_in_key = is_in_key or _KEY_BEGINS.search(line) is not None
            cleaned.append(HIDDEN if is_in_key else self._line(line))
            is_in_key = is_in_key and _KEY_ENDS.search(line) is None
        return "".join(f"{line}\n" for line in cleaned)

    def _line(self, line: str) -> str:
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            return self.text(line)
        if not isinstance(values, dict):
            return self.text(line)
        return json.dumps(self.values(values), ensure_ascii=False)


def is_secret_name(name: str) -> bool:
    """Whether a value under this name may be a secret. The name can be that of an option, a variable or an argument."""
    return _SECRET_NAME.fullmatch(name) is not None


def _is_plain(value: Any) -> bool:
    """Whether a value is a text that may be a secret. Empty texts and flags such as `true` are not secrets."""
    return isinstance(value, str) and value.lower() not in _NO_SECRETS


def _forms_of(secret: str) -> Iterator[str]:
    """Yield a secret as it is, and as it is escaped in URLs, JSON, logs and HTTP headers."""
    yield secret
    yield unquote(secret)
    yield quote(secret, safe="")
    yield quote(secret)
    yield quote_plus(secret)
    yield printable(secret)
    for escaped in (json.dumps(secret), json.dumps(secret, ensure_ascii=False), repr(secret)):
        yield escaped[1:-1]
        yield json.dumps(escaped[1:-1])[1:-1]
    yield base64.b64encode(secret.encode(errors="surrogateescape")).decode().rstrip("=")


def _pattern_of(form: str) -> str:
    escaped = re.escape(form)
    return escaped if len(form) >= _WHOLE_WORD_CHARACTERS else rf"(?<![A-Za-z0-9]){escaped}(?![A-Za-z0-9])"


def _without_password(found: re.Match[str]) -> str:
    scheme, user, password = found.groups()
    return f"{scheme}{HIDDEN}@" if password is None else f"{scheme}{user}:{HIDDEN}@"


# The sources of known secrets


def secrets_in_environment(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of the environment variables that are secrets according to their name or contents."""
    for name, value in environment.items():
        if is_secret_name(name) and _is_plain(value):
            yield value
        yield from secrets_in_url(value)


def secrets_in_url(text: str) -> Iterator[str]:
    """Yield the secret part of each URL in a text: the password, or the user name if there is no password."""
    for _, user, password in _URL.findall(text):
        yield password or user


def secrets_in_arguments(values: Any, *, is_secret: bool = False) -> Iterator[str]:
    """Yield the texts in a task's arguments that may be secrets: texts under a name such as `password`, and texts that
    look random. Other texts are ordinary words, and replacing them would make the archive useless.

    `is_secret` is true if `values` as a whole are under such a name.
    """
    if isinstance(values, Mapping):
        for name, each in values.items():
            yield from secrets_in_arguments(each, is_secret=is_secret or is_secret_name(str(name)))
    elif isinstance(values, list | tuple):
        for each in values:
            yield from secrets_in_arguments(each, is_secret=is_secret)
    elif isinstance(values, str) and (is_secret or _RANDOM.fullmatch(values)):
        yield values
        yield from secrets_in_url(values)
