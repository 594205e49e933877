"""The alerts that each trouble must cause, and the first line of the status page and of `rota top`."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Answer:
    """The expected result of a trouble. `right` has the alerts that name the cause, one of which must fire first.
    `also` has other alerts that may follow. `headline` is a pattern of the first line on the observed node, or "" if no
    node is left to show it.
    """

    right: tuple[str, ...]
    also: tuple[str, ...]
    headline: str


def _answer(*right: str, also: Iterable[str] = (), headline: str) -> Answer:
    return Answer(right, tuple(also), headline)


ANSWERS: Final[dict[str, Answer]] = {
    "crash_loop": _answer(
        "RotaWorkerCrashLoop",
        also=["RotaWorkersMissing"],
        headline=r"\d+ processes died in the last 5 m, \d+ of them in task crash; the last: ",
    ),
    "hung_task": _answer(
        "RotaTaskHung", headline=r"worker \d+ has run hold for .+, usually at most .+; its limit is 1 h"
    ),
    "failing_tasks": _answer(
        "RotaDeadLetters",
        also=["RotaTaskFailing"],
        headline=r"queue work: (\d+) of \1 attempts failed in the last 5 m, \d+ dead task",
    ),
    "failing_hook": _answer(
        "RotaStartsHeld", headline=r"pool default is in \w+: \d+ failures in a row, .+; last error: .+\.connect raised"
    ),
    "saturation": _answer(
        "RotaLagBurn1h",
        headline=r"queue work is late: .+, but its objective is 1.5 s; all workers are busy \(2\): tasks arrive faster",
    ),
    "rare_late_queue": _answer("RotaLagBurn1h", headline=r"queue rare (is|was) late.*: .+, but its objective is 50 ms"),
    "unserved_queue": _answer(
        "RotaQueueUnserved", headline=r"queue wrok: no worker serves it, 5 tasks waiting, the oldest for "
    ),
    "forgotten_queue": _answer(
        "RotaQueueForgotten", headline=r"queue work has been paused for .+, 5 tasks waiting, the oldest for "
    ),
    "pollers_stuck": _answer(
        "RotaPollerBehind",
        "RotaWorkerCrashLoop",
        headline=r"the poller is in \w+: |(\d of \d pollers serve|there is no poller).*: what is |\d+ processes died",
    ),
    "redis_away": _answer("RotaRedisDown", headline=r"Redis has not responded for .+: no task starts"),
    "node_lost": _answer("RotaNodeLost", headline=r"node .+ has sent no heartbeat for .+: the other nodes run"),
    "fleet_absent": _answer("RotaAbsent", headline=""),
    "bad_reload": _answer(
        "RotaConfigReloadFailed", headline=r"the last reload was refused .+ ago: .*workers: expected a whole number"
    ),
    "log_blocked": _answer(
        "RotaLogLinesDropped", headline=r"[\d,]+ log lines? lost: the reader of the log is too slow"
    ),
}
