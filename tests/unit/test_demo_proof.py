"""The final checks of the demo, which must fail if any of the demo's claims is false."""

from typing import Any

import pytest

from rota_supervisor.demo.proof import Accepted, Run, prove

ACCEPTED = {
    "one": Accepted("send", 100.0),
    "two": Accepted("send", 105.0),
    "three": Accepted("build", 100.0),
}
RUNS = (
    Run("start", "one", "send", 7, 101.0, 100.0),
    Run("failed", "one", "send", 7, 101.1, 100.0),
    Run("start", "one", "send", 8, 103.0, 102.9),
    Run("done", "one", "send", 8, 103.1, 102.9),
    Run("start", "two", "send", 7, 105.1, 105.05),
    Run("done", "two", "send", 7, 105.2, 105.05),
    Run("start", "three", "build", 9, 101.0, 100.0),  # the worker is killed during this run
    Run("start", "three", "build", 10, 101.5, 100.0),
    Run("done", "three", "build", 10, 102.0, 100.0),
)
STRANGER = (Run("start", "x", "send", 7, 101.0, 100.0), Run("done", "x", "send", 7, 101.0, 100.0))
TWICE = (Run("start", "one", "send", 8, 104.0, 102.9), Run("done", "one", "send", 8, 104.1, 102.9))
EARLY = Run("start", "two", "send", 7, 104.99, 100.0)
EARLIER_THAN_DUE = Run("start", "two", "send", 7, 105.01, 105.02)


def status(**changes: Any) -> dict[str, Any]:
    """Return the fleet's status after the demo run that RUNS describes, with these changes."""
    return {
        "queues": [{"state": {"accepted": 3}, "processed": {"done": 3}}],
        "restarts": [{"role": "worker", "reason": "signal", "count": 1}],
        "recovered": 1,
        "early_starts": 0,
        "missing_tasks": 0,
        **changes,
    }


def failed(accepted: Any = ACCEPTED, runs: Any = RUNS, killed: Any = ("three",), **changes: Any) -> dict[str, str]:
    """Check the demo's claims against these records, and return the checks that failed by name."""
    return {check.name: check.seen for check in prove(accepted, runs, killed, status(**changes)) if not check.ok}


def test_a_demo_with_a_retry_and_a_killed_worker_passes_its_proof() -> None:
    assert failed() == {}


@pytest.mark.parametrize(
    ("evidence", "name", "seen"),
    [
        ({"runs": RUNS[:-1]}, "every task ran", "1 of 3 never done: build three"),
        ({"accepted": {**ACCEPTED, "four": Accepted("send", 100.0)}}, "every task ran", "send four"),
        ({"accepted": {}}, "every task ran", "0 accepted"),
        ({"runs": (*RUNS, *TWICE)}, "none ran twice", "send one"),
        ({"runs": (*RUNS, RUNS[4])}, "none ran twice", "send two"),
        ({"killed": ()}, "none ran twice", "build three"),
        ({"runs": (*RUNS, EARLY)}, "none started early", "send two"),
        ({"runs": (*RUNS, EARLIER_THAN_DUE)}, "none started early", "send two"),
        ({"runs": (*RUNS, *STRANGER)}, "none unknown", "send x"),
        ({"early_starts": 1}, "audit", "1 counted as early"),
        ({"missing_tasks": 1}, "audit", "1 missing"),
        ({"missing_tasks": None}, "audit", "None missing"),
        ({"queues": [{"state": {"accepted": 4}, "processed": {"done": 3}}]}, "the counts agree", "4 enqueued"),
        ({"queues": [{"state": {"accepted": 3}, "processed": {"done": 2}}]}, "the counts agree", "2 done"),
        ({"queues": [{"state": None, "processed": {"done": 3}}]}, "the counts agree", "0 enqueued"),
        ({"restarts": []}, "kill noticed", "0 restarted"),
        ({"recovered": 0}, "kill noticed", "0 task recovered"),
    ],
)
def test_the_demo_proof_names_each_failed_check(evidence: dict[str, Any], name: str, seen: str) -> None:
    assert seen in failed(**evidence)[name]


def test_a_failed_check_of_the_demo_names_only_a_few_tasks() -> None:
    many = {f"{number:04}": Accepted("send", 100.0) for number in range(1000)}
    assert failed(many, ())["every task ran"] == "1000 of 1,000 never done: send 0000, send 0001, send 0002, ..."
