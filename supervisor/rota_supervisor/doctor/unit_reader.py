"""The settings of a fleet's systemd unit, as `systemctl show` reports them."""

import math
import re
import shutil
import subprocess
from typing import Final

from rota_supervisor.doctor.readings import UnitReading, Unread

_UNIT: Final = re.compile(r"/([^/]+\.service)(?:/|$)")
_OF_USER: Final = "/user@"
_PROPERTIES: Final = ("LoadState", "Type", "TimeoutStopUSec", "KillMode", "OOMPolicy", "WatchdogUSec")
_SECONDS: Final = 5.0
_INFINITE: Final = "infinity"
_PART: Final = re.compile(r"([\d.]+) ?([a-z]+)")
# The units of a systemd time span, in seconds. The lengths of a month and a year are those in systemd.time(7).
_UNITS: Final = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86_400.0,
    "w": 604_800.0,
    "month": 2_629_800.0,
    "y": 31_557_600.0,
}


def unit_in(groups: str) -> tuple[str, bool] | None:
    """Return the systemd unit of a process, and whether a user's service manager runs the unit. `groups` is the text of
    the process's `/proc/PID/cgroup`. Returns None if the process is not in a service."""
    for line in groups.splitlines():
        _, names, path = line.split(":", 2)
        if names not in ("", "name=systemd"):
            continue
        units = [name for name in _UNIT.findall(path) if not name.startswith("user@")]
        if units:
            return units[-1], _OF_USER in path
    return None


def read_unit(name: str, *, is_of_user: bool, unread: list[Unread]) -> UnitReading | None:
    """Return the settings of a unit. If systemd does not reply or has no such unit, return None and add the reason to
    `unread`."""
    program = shutil.which("systemctl")
    if program is None:
        unread.append(Unread(f"the unit {name}", "this machine has no systemctl"))
        return None
    options = ["--user"] if is_of_user else []
    command = [program, *options, "show", "--no-pager", f"--property={','.join(_PROPERTIES)}", "--", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603 - no shell
    except (OSError, subprocess.TimeoutExpired) as error:
        unread.append(Unread(f"the unit {name}", str(error)))
        return None
    properties = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    if done.returncode != 0 or properties.get("LoadState") != "loaded":
        why = (
            done.stderr.strip().partition("\n")[0]
            or f"systemd does not have this unit: {properties.get('LoadState', '')}"
        )
        unread.append(Unread(f"the unit {name}", why))
        return None
    return unit_of_properties(name, properties)


def unit_of_properties(name: str, properties: dict[str, str]) -> UnitReading:
    """Create a unit's reading from the properties that `systemctl show` printed."""
    return UnitReading(
        name,
        type=properties.get("Type", ""),
        stop_seconds=seconds_in(properties.get("TimeoutStopUSec", "")),
        kill_mode=properties.get("KillMode", ""),
        oom_policy=properties.get("OOMPolicy", ""),
        watchdog_seconds=seconds_in(properties.get("WatchdogUSec", "")) or 0.0,
    )


def seconds_in(span: str) -> float | None:
    """Return the number of seconds in a systemd time span, for example `1min 30s` or `infinity`. Return None if the
    text is not a time span."""
    if span == _INFINITE:
        return math.inf
    if span.isdecimal():
        return float(span) * _UNITS["us"]
    parts = _PART.findall(span)
    if not parts or any(unit not in _UNITS for _, unit in parts):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
