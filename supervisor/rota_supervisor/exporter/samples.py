"""Samples: the numbers of all series at one time."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import add

from rota.telemetry.definition import Definition

Labels = tuple[str, ...]
Numbers = tuple[float, ...]
Series = tuple[Definition, Labels, Numbers]


@dataclass(frozen=True, slots=True)
class Samples:
    """What is known of each series: as many numbers as `Definition.numbers` says."""

    _by_name: dict[str, dict[Labels, Numbers]] = field(default_factory=dict)

    def put(self, definition: Definition, labels: Labels, *numbers: float) -> None:
        """Know this series, whatever was known of it."""
        self._by_name.setdefault(definition.name, {})[labels] = numbers

    def add(self, definition: Definition, labels: Labels, numbers: Numbers) -> None:
        """Add numbers to a series, from 0."""
        series = self._by_name.setdefault(definition.name, {})
        known = series.get(labels)
        series[labels] = numbers if known is None else tuple(map(add, known, numbers))

    def raise_to(self, definition: Definition, labels: Labels, numbers: Numbers) -> None:
        """Know the higher of these and what is known of a series."""
        self.put(definition, labels, *max(numbers, self.get(definition, *labels) or numbers))

    def series(self, definition: Definition) -> Iterator[tuple[Labels, Numbers]]:
        yield from self._by_name.get(definition.name, {}).items()

    def get(self, definition: Definition, *labels: str) -> Numbers | None:
        """Return the numbers of one series, or None when it is not known."""
        return self._by_name.get(definition.name, {}).get(labels)

    def value(self, definition: Definition, *labels: str) -> float | None:
        """Return the number of a counter or gauge, or None when it is not known."""
        numbers = self.get(definition, *labels)
        return None if numbers is None else numbers[0]
