"""The signing keys of a process. Keys come from files, from the environment, or from the application itself."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rota.protocol.signatures import KEY_NAME, TASK, SignatureError, SigningKey, SigningSettings, verify
from rota.tasks.fleet_settings import read_settings_file

LEAST_KEY_BYTES: Final = 32
FILE: Final = "file:"
ENVIRONMENT: Final = "env:"
_CHECK_SECONDS: Final = 1.0  # interval between checks of the key files for changes while keys are in use
_Stamp = tuple[int, int, int]


def read_key(source: str | bytes) -> bytes:
    """Return a key from its source: `file:PATH`, `env:NAME`, or bytes. White space around the key is removed.

    Raises ValueError with the reason if the source has no key, or if the key is too short. The message never contains
    the key.
    """
    if isinstance(source, bytes):
        key, where = source, "the key"
    elif isinstance(source, str) and source.startswith(FILE):
        where = source.removeprefix(FILE)
        try:
            key = read_settings_file(Path(where))
        except OSError as error:
            raise ValueError(f"{where} cannot be read: {error.strerror}") from None
    elif isinstance(source, str) and source.startswith(ENVIRONMENT):
        where = f"the environment variable {source.removeprefix(ENVIRONMENT)}"
        key = os.environb.get(source.removeprefix(ENVIRONMENT).encode(), b"")
    else:  # The source itself is not shown, because it may be a key.
        raise ValueError('expected "file:PATH" or "env:NAME"')
    key = key.strip()
    if len(key) < LEAST_KEY_BYTES:
        raise ValueError(
            f"{where} has {len(key)} bytes, but a key needs at least {LEAST_KEY_BYTES}: "
            "make one with `openssl rand -hex 32`"
        )
    return key


def in_folder(source: str, folder: Path) -> str:
    """Return the source. If it names a file by a relative path, the path is taken as relative to `folder`."""
    if not source.startswith(FILE):
        return source
    return f"{FILE}{(folder / source.removeprefix(FILE)).absolute()}"


def faults_in(settings: SigningSettings) -> dict[str, str]:
    """Return an error message for each setting that is not valid. The keys of the dictionary are `keys`, `keys.NAME` or
    `sign_with`."""
    faults = {}
    for name, source in settings.keys.items():
        if not KEY_NAME.fullmatch(name):
            faults["keys"] = "the name of a key has 1 to 64 letters, digits, hyphens or underscores"
            continue
        try:
            read_key(source)
        except ValueError as error:
            faults[f"keys.{name}"] = str(error)
    if settings.required and not settings.keys:
        faults["keys"] = "signatures are required, but there is no key"
    elif settings.keys and settings.sign_with not in settings.keys:
        names = ", ".join(settings.keys)
        faults["sign_with"] = f"expected the name of one of the keys ({names}), got {settings.sign_with!r}"
    elif settings.sign_with and not settings.keys:
        faults["sign_with"] = "there are no keys: set keys too"
    return faults


class Keyring:
    """The keys that the settings name, which sign and verify texts. If a key file changes while the keyring is in use,
    the file is read again within about a second. If it cannot be read, or contains no key, the old key stays in use.
    """

    def __init__(self, settings: SigningSettings) -> None:
        """Read the keys. Raises ValueError if the settings are not valid."""
        for setting, fault in faults_in(settings).items():
            raise ValueError(f"signing {setting}: {fault}")
        self._settings = settings
        self._signs = settings.sign_with.encode()
        self._keys = {name.encode(): SigningKey(name, read_key(source)) for name, source in settings.keys.items()}
        self._stamps = self._current_stamps()
        self._checked_at = time.monotonic()

    def sign(self, text: bytes, kind: bytes = TASK) -> bytes:
        """Return the text with a signature."""
        return self._fresh()[self._signs].sign(text, kind)

    def verify(self, raw: bytes, kind: bytes = TASK) -> tuple[bytes, bool]:
        """Return the text without its signature, and whether it has one.

        Raises SignatureError if the signature is wrong, or if it is missing although it is required.
        """
        text, is_signed = verify(raw, kind, self._fresh())
        if self._settings.required and not is_signed:
            raise SignatureError("it is not signed, but signatures are required here")
        return text, is_signed

    def _fresh(self) -> Mapping[bytes, SigningKey]:
        now = time.monotonic()
        if now - self._checked_at >= _CHECK_SECONDS:
            self._checked_at = now
            self._read_changed()
        return self._keys

    def _read_changed(self) -> None:
        stamps = self._current_stamps()
        for name, stamp in stamps.items():
            if stamp != self._stamps.get(name):
                try:
                    self._keys[name.encode()] = SigningKey(name, read_key(self._settings.keys[name]))
                except ValueError:
                    continue
                self._stamps[name] = stamp

    def _current_stamps(self) -> dict[str, _Stamp]:
        """Return a stamp of each key that comes from a file. The stamp changes when the file is replaced or written, so
        that the key must be read again."""
        stamps = {}
        for name, source in self._settings.keys.items():
            if isinstance(source, str) and source.startswith(FILE):
                try:
                    found = Path(source.removeprefix(FILE)).stat()
                except OSError:
                    continue
                stamps[name] = (found.st_mtime_ns, found.st_ino, found.st_size)
        return stamps


def keyring_of(settings: SigningSettings | None) -> Keyring | None:
    """Return a keyring with these settings, or None if there are no keys. Raises ValueError if the settings are not
    valid."""
    if settings is None or settings == SigningSettings():
        return None
    return Keyring(settings)
