"""How much memory each child of a master takes, measured here: looking at 500 processes would hold up its loop.

A page that several processes share counts in RSS whole in each of them, and in PSS by its share: the PSS of all
children add up to what they take. Private is what would be free again without the child, shared is all else.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import psutil

MEGABYTE: Final = 2**20
_NAMES: Final = ("rss", "pss", "shared", "private")
_UNKNOWN: Final = dict.fromkeys(f"{name}_bytes" for name in _NAMES)


def with_memory(rows: Iterable[Mapping[str, Any]], master_pid: int) -> list[dict[str, Any]]:
    """Children, as the master tells of them, with `rss_bytes`, `pss_bytes`, `shared_bytes` and `private_bytes`: None
    for a child without a process, of another user, or in a PID namespace that has other numbers than this one."""
    return [{**row, **(_memory_of(row["pid"], master_pid) if row["pid"] else _UNKNOWN)} for row in rows]


def in_megabytes(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The same with `rss_mb` and so on, for people."""
    return [{**row, **{f"{name}_mb": _megabytes(row[f"{name}_bytes"]) for name in _NAMES}} for row in rows]


def _memory_of(pid: int, parent: int) -> Mapping[str, int | None]:
    try:
        process = psutil.Process(pid)
        if process.ppid() != parent:
            return _UNKNOWN
        found = process.memory_full_info()
    except (psutil.Error, OSError):
        return _UNKNOWN
    sizes = (found.rss, found.pss, found.rss - found.uss, found.uss)
    return {f"{name}_bytes": size for name, size in zip(_NAMES, sizes, strict=True)}


def _megabytes(size: int | None) -> float | None:
    return None if size is None else round(size / MEGABYTE, 1)
