"""Log lines as JSON, the format of production: what does not change from line to line is made once."""

import json.encoder
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from rota.printable import printable_json
from rota.telemetry.log_fields import EXC_INFO, FIRST, LINE_BYTES, Clock, Counts, Fields, all_fields, encoded, fit


def _encoder() -> Callable[[object], str]:
    """JSON of a value; of what JSON has no word for, its repr.

    `JSONEncoder.encode` makes its working half anew at each call, 0.9 of the 3.2 us that the fields of an attempt
    cost; it is kept here where the C library has it. msgspec would need 0.4 us, but 1.2 MB in each process, and
    writes other things than these for dates, sets, bytes, enums and NaN.
    """
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=repr).encode
    chunks: Callable[[object, int], Iterable[str]] = make(
        None, repr, json.encoder.encode_basestring, None, ":", ",", False, False, True
    )
    return lambda value: "".join(chunks(value, 0))


_encode: Final = _encoder()
_quoted: Final = json.encoder.encode_basestring


class JsonLines:
    """Makes the lines of a process whose every line has the `bound` fields; counts those it had to cut."""

    def __init__(self, bound: Mapping[str, Any], counts: Counts) -> None:
        self._bound = {name: value for name, value in bound.items() if name not in FIRST}
        self._counts = counts
        self._now = Clock()
        self._bound_text = f",{_text(self._bound)[1:-1]}" if self._bound else ""
        self._own_names = frozenset((*FIRST, *bound, EXC_INFO))

    def __call__(self, level: str, event: str, fields: Fields) -> bytes:
        now = self._now()
        if fields and self._own_names.isdisjoint(fields):
            head = f'{{"timestamp":"{now}","level":"{level}","event":{_quoted(event)}{self._bound_text}'
            line = encoded(printable_json(f"{head},{_text(fields)[1:]}"))
            if len(line) <= LINE_BYTES:
                return line
        return fit(all_fields(now, level, event, self._bound, fields), _render, self._counts)


def _render(fields: Fields) -> str:
    return printable_json(_text(fields))


def _text(fields: Fields) -> str:
    try:
        return _encode(fields)
    except (TypeError, ValueError, RecursionError):  # a key that is no text, or a thing that holds itself
        return _encode({key: value if isinstance(value, str) else repr(value) for key, value in fields.items()})
