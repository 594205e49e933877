"""`rota explain`: how the running master reached a decision."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from rota.durations import in_words
from rota_supervisor.cli import command, output
from rota_supervisor.cli.master_verbs import request
from rota_supervisor.config.errors import suggestion
from rota_supervisor.exits import ExitCode, Failure

_Row = Mapping[str, Any]
_NODES: Final = ("NODE", "WORKERS", "STARTING", "FREE", "BUSY", "RANGE", "STARTS/S", "EACH", "LIMITED BY")
_QUEUES: Final = ("QUEUE", "READY", "OLDEST", "OBJECTIVE", "TARGET", "OPEN", "CAP", "RATE")


@click.group(cls=command.RotaGroup)
def explain() -> None:
    """Explain a decision of the running master."""


@explain.command("scaling")
@click.argument("pool", required=False)
def explain_scaling(*, pool: str | None) -> None:
    """Show the measurements of a pool with a range, and the resulting number of workers.

    The measurements cover all nodes. Only the node that leads the pool has them. Other nodes show the decision in force
    and the name of the leader.
    """
    pools = request("scaling")
    name = _pool_of(pool, pools)
    command.current_state().report(pools[name], "\n".join(_lines(name, pools[name])))
    if not command.current_state().json:
        _put_tables(pools[name], no_color=command.current_state().no_color)


def _pool_of(pool: str | None, pools: Mapping[str, _Row]) -> str:
    if not pools:
        raise Failure(ExitCode.NO, 'no pool has a range: set, for example, workers = "2..16" in rota.toml')
    if pool is None and len(pools) > 1:
        raise Failure(ExitCode.USAGE, f"several pools have a range; name one of them: {', '.join(pools)}")
    name = pool or next(iter(pools))
    if name not in pools:
        hint = suggestion(name, pools) or f"; the pools with a range are {', '.join(pools)}"
        raise Failure(ExitCode.NO, f'no pool "{name}" has a range{hint}')
    return name


def _lines(name: str, row: _Row) -> Iterator[str]:
    yield f"pool {name}: {output.counted(row['workers'], 'worker')} on {row['node']}, range {row['min']}..{row['max']}"
    if "wanted" not in row:
        yield "no decision yet: the first decision follows within a second after the fleet is ready and reaches Redis"
        return
    yield f"wanted {row['wanted']} in the whole fleet: {row['reason']}"
    yield f"steady {row['steady']}, drain {row['drain']}, tail {row['tail']}; without bounds {row['unbounded']}"
    yield f"shares: {', '.join(f'{node} {workers}' for node, workers in row['shares'].items())}"
    if row["limited_by"]:
        yield f"limited by: {', '.join(row['limited_by'])}"
    if "nodes" not in row:
        yield f"the measurements are on the node that leads this pool: {row['leader']}"


def _put_tables(row: _Row, *, no_color: bool) -> None:
    for header, rows, cells in ((_NODES, row.get("nodes"), _node_cells), (_QUEUES, row.get("queues"), _queue_cells)):
        if rows:
            output.put("")
            output.put_table(header, map(cells, rows), no_color=no_color)


def _node_cells(node: _Row) -> tuple[object, ...]:
    window = node["long"]
    limited = "operator" if node["operator"] is not None else node["limited_by"]
    return (
        node["node"],
        node["workers"],
        node["starting"],
        node["free_slots"],
        node["running"] + node["held"],
        f"{node['min']}..{node['max']}",
        "-" if window["starts_per_second"] is None else f"{window['starts_per_second']:,.1f}",
        "-" if window["task_seconds"] is None else in_words(window["task_seconds"]),
        limited or "-",
    )


def _queue_cells(queue: _Row) -> tuple[object, ...]:
    return (
        queue["queue"],
        queue["ready"],
        in_words(queue["oldest_seconds"]),
        in_words(queue["objective_seconds"]),
        f"{queue['target']:.4g}",
        "yes" if queue["is_open"] else "no",
        queue["cap"] or "-",
        "-" if queue["rate_per_second"] is None else f"{queue['rate_per_second']:g}/s",
    )
