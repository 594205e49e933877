"""The faults of a configuration. All faults are reported at once. Each has its path and the value that was found,
without possible secrets.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, time

from rota.display_text import quoted
from rota_supervisor.config.model import Config

SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a configuration."""

    path: str  # for example `tiers[1]` or `queues.sold-email.weight`, or the name of an environment variable
    message: str
    origin: str = ""  # where the value came from if not from the file, for example `environment ROTA_WORKERS`

    @property
    def top_key(self) -> str:
        """The top-level key that contains the fault."""
        return re.split(r"[.[]|__", self.path.removeprefix("ROTA_"), maxsplit=1)[0].lower()

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" + (f" ({self.origin})" if self.origin else "")


class ConfigError(Exception):
    """A configuration that cannot be used."""

    faults: tuple[Fault, ...]  # all faults
    usable: Config  # the part that could be read, with defaults for the rest; used to find a running master
    content: bytes | None  # the contents of the file

    def __init__(self, faults: Iterable[Fault], usable: Config | None = None, content: bytes | None = None) -> None:
        self.faults = tuple(faults)
        self.usable = usable or Config()
        self.content = content
        super().__init__("; ".join(str(fault) for fault in self.faults))


def shown(value: object) -> str:
    """Return a value for the words "got ..." in a fault. The value appears as it was written, but shortened and without
    possible secrets.
    """
    if isinstance(value, list | Mapping):
        return "a list" if isinstance(value, list) else "a table"
    try:
        text = quoted(value) if isinstance(value, str) else json.dumps(value)
    except (TypeError, ValueError):  # JSON has no dates, and Python does not print thousands of digits.
        text = value.isoformat() if isinstance(value, date | time) else "a number too long to show"
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."


def suggestion(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """Return `, did you mean "X"?` for the known name that is most similar, or "" if no known name is similar enough.
    `likeness` is the least similarity, from 0 to 1.
    """
    import difflib  # noqa: PLC0415 - 0.2 MB that a master needs only if there are faults

    near = difflib.get_close_matches(name, list(known), n=1, cutoff=likeness)
    return f', did you mean "{near[0]}"?' if near else ""
