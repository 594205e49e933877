"""Run each rule on each trace. `python -m scaling docs/images/scaling.svg` draws the plot and prints the table."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from scaling.controllers import Celery, Controller, Horizon, Judoscale, Keda, Rota
from scaling.scaling_plot import Column, drawn
from scaling.scaling_run import best, run
from scaling.traces import TRACES, burst, saturated, square_wave

RULES: Final[Mapping[str, Callable[[], Controller]]] = {
    "Rota": Rota,
    "Celery": Celery,
    "Horizon": Horizon,
    "KEDA": Keda,
    "Judoscale": Judoscale,
}
DRAWN: Final = (square_wave, burst, saturated)


def main(path: Path) -> None:
    """Write the plot, and print the rows of the table."""
    columns = []
    seconds = 0.0
    changes = dict.fromkeys(RULES, 0.0)
    for make in TRACES:
        trace = make(0)
        optimum = best(trace)
        outcomes = {name: run(trace, rule()) for name, rule in RULES.items()}
        cells = [
            f"{outcome.worker_seconds / optimum.outcome.worker_seconds:.2f}, {100 * outcome.late_share:.2g} %"
            for outcome in outcomes.values()
        ]
        delayed = optimum.delayed_worker_seconds / optimum.outcome.worker_seconds
        sys.stdout.write(f"| {trace.name} | {delayed:.2f} | {' | '.join(cells)} |\n")
        for name, outcome in outcomes.items():
            changes[name] += len(outcome.steps)
        seconds += trace.seconds
        if make in DRAWN:
            columns.append(Column(trace, optimum.outcome, outcomes))
    hourly = [f"{count * 3600 / seconds:.0f}" for count in changes.values()]
    sys.stdout.write(f"| changes of the number in an hour | | {' | '.join(hourly)} |\n")
    path.write_text(drawn(columns))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
