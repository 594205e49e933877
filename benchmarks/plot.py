"""`python -m benchmarks.plot RESULT.json FOLDER`: plots a recorded run. The interpreter must have matplotlib.

The files are drain.svg, lag.svg, crash.svg and growth.svg. If a measurement was not part of the run, its plot is left
out.
"""

import json
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl  # type: ignore[import-not-found]
from matplotlib import pyplot as plt

from benchmarks.numbers import Result, of, ratios, read_results

OURS = "#b03a2e"
KEEPS = "#2e6da4"
LOSES = "#a9a9a9"
EARLY_MS = 0.05  # early starts are drawn here, because a logarithmic axis has no negative values
WIDTH = 7.5
AXES = {
    "depth": "tasks waiting",
    "delayed": "delayed tasks waiting",
    "workers": "workers",
    "queues": "queues",
    "pattern": "queues of a pattern with work",
}


def _colour(name: str, contenders: dict[str, Any]) -> str:
    if name.startswith("rota"):
        return OURS
    return KEEPS if contenders[name]["at_least_once"] else LOSES


def _middle(results: Sequence[Result], measure: str, name: str, key: str) -> float | None:
    found = of(results, measure, name, key).values()
    return statistics.median(found) if found else None


def _bars(axes: Any, rows: Sequence[tuple[str, float, str, str]]) -> None:
    """Draw a horizontal bar for each row, with the first row at the top. A row has a name, a length, a colour and a
    label.
    """
    for row_index, (_, length, colour, words) in enumerate(rows):
        axes.barh(row_index, length, color=colour, height=0.7)
        axes.annotate(words, (length, row_index), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [name for name, *_ in rows])
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)


def _explain(axes: Any) -> None:
    """Add a legend for the colours."""
    patches = [mpl.patches.Patch(color=colour) for colour in (OURS, KEEPS, LOSES)]
    axes.legend(patches, ["Rota", "at least once", "loses what it holds"], fontsize=8, frameon=False, loc="lower right")


def drain(results: Sequence[Result], recorded: dict[str, Any]) -> Any:
    """Plot the rates of drains, relative to the classic loop."""
    rows = []
    contenders = recorded["contenders"]
    for name in contenders:
        rate = _middle(results, "drain", name, "rate")
        factors = ratios(of(results, "drain", name, "rate"), of(results, "drain", "classic", "rate"))
        if rate is not None and factors:
            factor = statistics.median(factors)
            rows.append((name, factor, _colour(name, contenders), f"{factor:.2f}x   {rate:,.0f}/s"))
    figure, axes = plt.subplots(figsize=(WIDTH, 0.8 + 0.32 * len(rows)))
    _bars(axes, sorted(rows, key=lambda row: -row[1]))
    axes.set_xlabel("tasks per second, as a multiple of the classic loop (2 workers, tasks that do nothing)")
    axes.margins(x=0.18)
    _explain(axes)
    return figure


def lag(results: Sequence[Result], recorded: dict[str, Any]) -> Any:
    """Plot the share of tasks that had started by each time after their due time."""
    figure, axes = plt.subplots(figsize=(WIDTH, 3.8))
    for name in recorded["contenders"]:
        late = sorted(
            ms for one in results if (one.measure, one.contender) == ("lag", name) for ms in one.values["lag_ms_all"]
        )
        if late:
            shares = [100 * (rank + 1) / len(late) for rank in range(len(late))]
            width = 2.4 if name == "rota" else 1.2
            colour = OURS if name == "rota" else None
            axes.step(
                [max(ms, EARLY_MS) for ms in late], shares, where="post", label=name, linewidth=width, color=colour
            )
    axes.set_xscale("log")
    axes.set_xlabel("start - due, ms (4 idle workers, random due times; early starts are at the left edge)")
    axes.set_ylabel("tasks started, %")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def crash(results: Sequence[Result], recorded: dict[str, Any]) -> Any:
    """Plot the time from a SIGKILL until the running task starts again."""
    rows = []
    contenders = recorded["contenders"]
    patience_ms = recorded["effort"]["crash_seconds"] * 1000
    for name in contenders:
        if any((one.measure, one.contender) == ("crash", name) for one in results):
            ms = _middle(results, "crash", name, "rerun_ms")
            words = f"not within {patience_ms / 1000:g} s" if ms is None else f"{ms:,.0f} ms"
            rows.append((name, patience_ms if ms is None else ms, _colour(name, contenders), words))
    figure, axes = plt.subplots(figsize=(WIDTH, 0.8 + 0.32 * len(rows)))
    _bars(axes, sorted(rows, key=lambda row: row[1]))
    axes.set_xscale("log")
    axes.set_xlim(1, patience_ms * 12)
    axes.set_xlabel("from SIGKILL of the process in the middle of a task until the task starts again, ms")
    return figure


def growth(results: Sequence[Result], _recorded: dict[str, Any]) -> Any:
    """Plot the cost of a task along each axis, relative to the first point of the axis."""
    figure, panels = plt.subplots(1, len(AXES), figsize=(WIDTH * 1.3, 2.8), sharey=True)
    for axes, (axis, title) in zip(panels, AXES.items(), strict=True):
        keys = {key for one in results if one.measure == "growth" for key in one.values}
        values = sorted(int(key.split()[1]) for key in keys if key.startswith(f"{axis} ") and not key.endswith("all"))
        costs = [_middle(results, "growth", "rota", f"{axis} {value}") for value in values]
        first = next((cost for cost in costs if cost), 1.0)
        axes.axhspan(0.8, 1.2, color="#dddddd", zorder=0)
        axes.plot(values, [(cost or 0) / first for cost in costs], marker="o", color=OURS)
        axes.set_xscale("log")
        axes.set_xlabel(title)
        axes.set_ylim(0, max(1.5, *((cost or 0) / first * 1.1 for cost in costs)))
        axes.grid(visible=True, alpha=0.3)
    panels[0].set_ylabel("time per task,\nrelative to the first point")
    return figure


PLOTS: dict[str, Callable[[Sequence[Result], dict[str, Any]], Any]] = {
    "drain": drain,
    "lag": lag,
    "crash": crash,
    "growth": growth,
}


def main(recorded_at: str, folder: str) -> None:
    """Draw the plots of all measurements in a recorded run."""
    mpl.use("svg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "rota", "font.size": 9, "font.family": "sans-serif"})
    recorded = json.loads(Path(recorded_at).read_text())
    results = read_results(recorded)
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, draw in PLOTS.items():
        if any(one.measure == name for one in results):
            figure = draw(results, recorded)
            figure.savefig(Path(folder) / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
