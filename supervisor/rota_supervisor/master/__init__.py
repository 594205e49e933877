"""The master: supervises the fleet. It runs no task code, imports no user code, and never forks."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota_supervisor.master.run import run_master

__all__ = ["run_master"]


def __getattr__(name: str) -> Any:
    # Late, because `rota status` needs one module of this package and not asyncio, structlog and the loop.
    if name == "run_master":
        from rota_supervisor.master.run import run_master  # noqa: PLC0415 - see above

        return run_master
    raise AttributeError(name)
