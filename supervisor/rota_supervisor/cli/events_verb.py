"""`rota events`: what became of each task, one line a change, kept or as it happens."""

import dataclasses
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from rota_supervisor.cli import command, output
from rota_supervisor.config.resolution import tls_options
from rota_supervisor.exits import ExitCode, Failure

if TYPE_CHECKING:
    from rota.client.event_stream import TaskEvents
    from rota.protocol.task_events import TaskEvent


_NOW: Final = "now"
_LOOK_SECONDS: Final = 1.0  # how long it may take to see that nobody reads any more
_COLUMNS: Final = ("at", "event", "queue", "task", "task_id")


@click.command(cls=command.RotaCommand)
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens, until Ctrl-C.")
@click.option("--after", default="0", metavar="ID", help='Only those behind this one; "now" for none of those kept.')
@click.option("--queue", help="Only those of this queue.")
@click.option("--task", help="Only those of this task.")
def events(*, follow: bool, after: str, queue: str | None, task: str | None) -> None:
    """Show the task events that are kept, oldest first. Exit 1 when there are none, as nobody wants any."""
    import rota  # noqa: PLC0415 - the client takes its time to import

    state = command.current_state()
    config = state.load_to_reach()
    place = None if after == _NOW else after
    with rota.Client(config.redis_url, config.namespace, **tls_options(config)) as client:
        with command.failing(
            {
                rota.EventsOff: ExitCode.NO,
                rota.Unavailable: ExitCode.UNREACHABLE,
                ValueError: ExitCode.USAGE,
            }
        ):
            reader = client.events(place, queue=queue, task=task, timeout=_LOOK_SECONDS if follow else 0)
        for event in _followed(reader) if follow else _kept(reader):
            output.put_json(_values_of(event)) if state.json else output.put(_line(event))
            sys.stdout.flush()


def _kept(reader: "TaskEvents") -> Iterator["TaskEvent"]:
    import rota  # noqa: PLC0415 - as above

    while True:
        try:
            yield from reader
        except rota.EventsLost as error:
            output.say_warning(str(error))
        except rota.Unavailable as error:
            raise Failure(ExitCode.UNREACHABLE, str(error)) from None
        else:
            return


def _followed(reader: "TaskEvents") -> Iterator["TaskEvent"]:
    """Until nobody reads any more; an outage is said once."""
    import rota  # noqa: PLC0415 - as above

    is_away = False
    while not output.is_reader_gone(sys.stdout):
        try:
            for event in reader:
                is_away = False
                yield event
        except rota.EventsLost as error:
            output.say_warning(str(error))
        except rota.Unavailable as error:
            if not is_away:
                output.say_warning(f"{error}: waiting for it")
            is_away = True


def _values_of(event: "TaskEvent") -> dict[str, Any]:
    values = dataclasses.asdict(event).items()
    return {key: _plain(value) for key, value in values if value not in ("", None)}


def _plain(value: Any) -> Any:
    return value.isoformat(timespec="milliseconds") if isinstance(value, datetime) else value


def _line(event: "TaskEvent") -> str:
    values = _values_of(event)
    at, name, *where = (str(values.pop(column, "-")) for column in _COLUMNS)
    rest = (f"{key}={value}" for key, value in values.items() if key != "id")
    return " ".join([at, f"{name:<9}", *where, *rest])
