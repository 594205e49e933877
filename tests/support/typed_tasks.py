"""Tasks whose annotations are types that JSON does not have. Fleets under test and enqueuing programs import them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypedDict
from uuid import UUID

import msgspec
from pydantic import BaseModel

import rota

if TYPE_CHECKING:
    from nowhere import Nothing  # type: ignore[import-not-found]  # only a type checker resolves this


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Level(IntEnum):
    LOW = 1


class Place(NamedTuple):
    x: int
    on: date


class Note(TypedDict):
    text: str
    at: time


class Stamp(msgspec.Struct):
    code: bytes
    seen: tuple[int, ...] = ()


class Guest(BaseModel):
    name: str
    since: datetime


@dataclass
class Line:
    count: int
    price: Decimal


@dataclass
class Parcel:
    """A record with fields of many types that JSON does not have."""

    id: UUID = field(default_factory=lambda: UUID(int=7))
    lines: list[Line] = field(default_factory=lambda: [Line(2, Decimal("1.50"))])
    tags: set[str] = field(default_factory=lambda: {"a", "b"})
    size: Size = Size.LARGE
    level: Level = Level.LOW
    place: Place = field(default_factory=lambda: Place(1, date(2026, 2, 3)))
    takes: timedelta = timedelta(days=-1, microseconds=3)
    folder: Path = Path("/tmp/parcel")
    guest: Guest | None = field(default_factory=lambda: Guest(name="g", since=datetime(2026, 1, 1, tzinfo=UTC)))
    stamp: Stamp = field(default_factory=lambda: Stamp(b"\0x", (1, 2)))
    by_number: dict[int, frozenset[int]] = field(default_factory=lambda: {1: frozenset({2})})


@rota.task(result_ttl=600)
def send_back(
    at: datetime, parcel: Parcel, *sizes: Size, box: tuple[int, float], note: Note | None = None, **ids: UUID
) -> tuple[datetime, Parcel, tuple[Size, ...], tuple[int, float], Note | None, dict[str, UUID]]:
    assert isinstance(parcel.lines[0].price, Decimal)
    return at, parcel, sizes, box, note, ids


@rota.task(result_ttl=600, pydantic=True)
def count_up(count: int, guest: Guest) -> Guest:
    return Guest(name=f"{guest.name}{count + 1}", since=guest.since)


@rota.task(result_ttl=600)
def double(number: int, _: Nothing | None = None) -> int:
    return number * 2


@rota.task(schedules=[rota.Every(3600, args=[datetime(2026, 5, 1, tzinfo=UTC)], name="typed")], result_ttl=600)
def remind(at: datetime = datetime(2000, 1, 1, tzinfo=UTC)) -> datetime:
    return at
