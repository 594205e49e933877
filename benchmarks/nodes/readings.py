"""Readings of a server's processor time, commands, memory and connections, and of the commands that MONITOR shows."""

import time
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rota.protocol import scripts

_LUA = Path(scripts.__file__).parent.parent / "lua"


@dataclass(frozen=True, slots=True)
class Reading:
    """A reading of the server's counters."""

    at: float  # monotonic, in seconds
    cpu_seconds: float  # processor time of all threads of the server
    commands: int  # commands of clients, without those that scripts called
    scripts: int  # calls of scripts
    memory_bytes: int
    clients: int

    def rates_since(self, before: "Reading") -> dict[str, float]:
        """Return the share of one core in percent, and the commands and scripts per second, since another reading."""
        seconds = self.at - before.at
        return {
            "cpu_percent": (self.cpu_seconds - before.cpu_seconds) / seconds * 100,
            "commands": (self.commands - before.commands) / seconds,
            "scripts": (self.scripts - before.scripts) / seconds,
        }


def read(client: Any) -> Reading:
    """Read the server's counters."""
    info = client.info("all")
    at = time.monotonic()
    calls = info.get("cmdstat_evalsha", {}).get("calls", 0)
    return Reading(
        at,
        info["used_cpu_user"] + info["used_cpu_sys"],
        info["total_commands_processed"],
        calls,
        info["used_memory"],
        info["connected_clients"],
    )


def counted(monitored: str) -> Counter[str]:
    """Return how often clients sent each command, from the lines of MONITOR. A call of a script counts under the name
    of the script."""
    lines = [line for line in monitored.splitlines()[1:] if " lua] " not in line]
    return Counter(name_of(line) for line in lines)


def name_of(line: str) -> str:
    """Return the name of the command in a line of MONITOR: the name of the script for EVALSHA, with a second word for
    CLIENT, for example `evalsha sweep` or `client tracking`."""
    words = line.partition("] ")[2].split(" ")
    first = words[0].strip('"').lower()
    second = words[1].strip('"') if len(words) > 1 else ""
    if first == "evalsha":
        return f"evalsha {_names_of_scripts().get(second, second)}"
    return f"client {second.lower()}" if first == "client" else first


@cache
def _names_of_scripts() -> dict[str, str]:
    names = sorted(path.stem for path in _LUA.glob("*.lua"))
    return {scripts.load_script(name).sha.decode(): name for name in names}
