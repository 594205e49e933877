"""What is wrong with a configuration, as values: every fault at once, each with its path."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, time

from rota.display_text import quoted
from rota_supervisor.config.model import Config

SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong. `path` as in `tiers[1]` or `queues.sold-email.weight`; `origin` is said when
    the value does not stand in the file, as in `environment ROTA_WORKERS`."""

    path: str
    message: str
    origin: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" + (f" ({self.origin})" if self.origin else "")


class ConfigError(Exception):
    """The configuration cannot be used; `faults` says everything that is wrong with it.

    `usable`: what could be read of it, with defaults for the rest: enough to find a master by. `content`: of its file.
    """

    def __init__(self, faults: Iterable[Fault], usable: Config | None = None, content: bytes | None = None) -> None:
        self.faults = tuple(faults)
        self.usable = usable or Config()
        self.content = content
        super().__init__("; ".join(str(fault) for fault in self.faults))


def shown(value: object) -> str:
    """A value as a person wrote it, shortened and without what may be a secret, for "got ..."."""
    if isinstance(value, list | Mapping):
        return "a list" if isinstance(value, list) else "a table"
    try:
        text = quoted(value) if isinstance(value, str) else json.dumps(value)
    except (TypeError, ValueError):  # a date; a number of thousands of digits
        text = "a date or a time" if isinstance(value, date | time) else "a number too long to show"
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."


def suggestion(word: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """`, did you mean "X"?` for the nearest known word, or "" when none is as near as `likeness` (0 to 1)."""
    import difflib  # noqa: PLC0415 - 0.2 MB that a master without faults does not pay

    near = difflib.get_close_matches(word, list(known), n=1, cutoff=likeness)
    return f', did you mean "{near[0]}"?' if near else ""
