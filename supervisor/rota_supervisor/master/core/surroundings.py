"""Where a master lives."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What does not change while a master lives. `node`: its name. `redis`: where the server is, without a password.
    `import_paths`: folders with the task modules. `control_socket`: its path. `has_manager`: a service manager is to be
    told how it goes; `watchdog_seconds`: the longest silence that it bears, 0 for any. `host`: the name of
    the machine. `file`: the absolute path of the configuration file, whether or not there is one."""

    node: str = "node"
    pid: int = 0
    redis: str = ""
    import_paths: tuple[str, ...] = ()
    control_socket: str = ""
    has_manager: bool = False
    watchdog_seconds: float = 0.0
    host: str = ""
    file: str = ""
