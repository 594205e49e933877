"""The facts of an examination, as records. If a value could not be read, it is None or "", and `unread` contains the
reason. Sizes are in bytes. The rules of `rota doctor` depend on nothing but these records.
"""

import resource
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rota.protocol.nodes import Node
from rota_supervisor.cgroups import CgroupReading
from rota_supervisor.config.model import Config


class Unread(NamedTuple):
    """A fact that could not be read."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """The limits of the master process, or of this command if no master was found. None means no limit."""

    pid: int
    is_master: bool
    user_id: int
    open_files: int | None = None
    processes: int | None = None  # the limit on the user's processes and threads, which does not apply to root
    address_space: int | None = None
    file_size: int | None = None
    processors: int | None = None  # the number of processors that the process may use
    user_threads: int | None = None  # the number of processes and threads of the process's user
    cgroup: CgroupReading = field(default_factory=CgroupReading)

    @property
    def limits(self) -> dict[int, int]:
        """The limits by their numbers in the standard module `resource`."""
        limits = {
            resource.RLIMIT_NOFILE: self.open_files,
            resource.RLIMIT_AS: self.address_space,
            resource.RLIMIT_FSIZE: self.file_size,
        }
        return {number: resource.RLIM_INFINITY if limit is None else limit for number, limit in limits.items()}


@dataclass(frozen=True, slots=True)
class SharedMemoryReading:
    """The file system at /dev/shm."""

    size: int
    free: int
    is_writable: bool


@dataclass(frozen=True, slots=True)
class MachineReading:
    """The machine, or what a container sees of it."""

    processors: int
    memory: int
    memory_available: int
    threads_limit: int | None = None  # for the whole machine: kernel.threads-max or kernel.pid_max, whichever is lower
    threads_used: int | None = None
    huge_pages: str = ""  # the setting of transparent huge pages: always, madvise or never
    overcommit: int | None = None  # vm.overcommit_memory
    shared_memory: SharedMemoryReading | None = None  # None if /dev/shm does not exist
    container: str = ""  # "kubernetes" or "container", or "" outside of a container


class LatencyEvent(NamedTuple):
    """An event in the reply to LATENCY LATEST."""

    name: str
    at: int  # the time of the last such event, in Unix seconds
    latest_ms: int
    highest_ms: int


@dataclass(frozen=True, slots=True)
class ServerReading:
    """The facts about the server, from its replies."""

    info: Mapping[str, str]  # the fields of INFO
    settings: Mapping[str, str]  # the settings that CONFIG GET returned
    faults: tuple[str, ...] = ()  # the reasons why a master would refuse to start with this server
    warnings: tuple[str, ...] = ()  # warnings about the durability of its data
    round_trips: tuple[float, ...] = ()  # in seconds
    at: float = 0.0  # the server's time, in Unix seconds
    clock_offset_seconds: float | None = None  # the server's clock minus the clock of this machine
    clock_error_seconds: float = 0.0  # the largest possible error of that offset
    latency_events: tuple[LatencyEvent, ...] | None = None  # None if the latency events could not be read
    is_local: bool | None = None  # whether the server runs on this machine
    is_one_of_cluster: bool = False  # whether redis_url names this node of a cluster as if it were a single server
    uses_huge_pages: bool | None = None  # whether its process can have transparent huge pages; None if unknown

    @property
    def release(self) -> str:
        return self.info.get("valkey_version") or self.info.get("redis_version", "")


@dataclass(frozen=True, slots=True)
class UnitReading:
    """The settings of a systemd service."""

    name: str
    type: str = ""
    stop_seconds: float | None = None  # TimeoutStopSec, or infinity if there is no limit
    kill_mode: str = ""
    oom_policy: str = ""
    watchdog_seconds: float = 0.0  # WatchdogSec, or 0 if the watchdog is off


@dataclass(frozen=True, slots=True)
class FleetReading:
    """The facts about the fleet, from its master, its heartbeats and the counters of its namespace."""

    status: Mapping[str, Any] | None = None  # the status of the master on this node
    why_no_status: str = ""
    nodes: tuple[Node, ...] = ()
    code: frozenset[str] | None = None  # the names of the tasks in this folder, or None if they were not imported
    missing_tasks: int | None = None  # the number of accepted tasks that are not accounted for


@dataclass(frozen=True, slots=True)
class Examination:
    """All facts of an examination."""

    config: Config
    workers: int  # the number of workers of all pools
    are_workers_set: bool  # whether the configuration sets the number of workers
    process: ProcessReading
    machine: MachineReading
    server: ServerReading | None = None  # None if the connection failed
    unit: UnitReading | None = None
    grace_seconds: float | None = None  # the service manager's timeout, as given on the command line
    fleet: FleetReading = FleetReading()
    unread: tuple[Unread, ...] = field(default=())
