"""`rota task enqueue --wait`: what became of the task."""

from typing import TYPE_CHECKING, Any

import rota
from rota_supervisor.cli import output
from rota_supervisor.exits import ExitCode, Failure

if TYPE_CHECKING:
    from rota.client.handle import Handle


def put_end(handle: "Handle[Any]", timeout_seconds: float | None, *, as_json: bool) -> None:
    """Wait for the task and write its result; raises Failure when it came to another end, or to none in time."""
    output.say(f"waiting for {handle.id}")
    told: dict[str, Any] = {"id": handle.id, "duplicate": handle.duplicate}
    try:
        told |= {"state": "done", "result": handle.result(timeout_seconds)}
    except rota.ResultNotStored as error:
        if error.status is None or error.status.state != "done":
            raise Failure(ExitCode.NO, str(error)) from None
        output.say(str(error))
        told["state"] = "done"
    except (rota.Unavailable, rota.Uncertain) as error:
        raise Failure(ExitCode.UNREACHABLE, str(error)) from None
    except (rota.TaskDead, rota.TaskCancelled, rota.TaskExpired, rota.WaitTimeout) as error:
        raise Failure(ExitCode.NO, str(error)) from None
    if as_json:
        output.put_json(told)
    elif "result" in told:
        output.put_json(told["result"])
