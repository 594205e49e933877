"""Three nodes on separate hosts, with the load and the checks of the soak test. The faults are a partition that heals,
a lost host, and a rolling upgrade from the previous version and back.
"""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from soak.case import Case
from soak.causes import Span
from soak.faults import Fault
from soak.reading import read_evidence
from soak.repeats import cause_of
from support.earlier_version import NoEarlierVersion, earlier_commit
from support.fleets import Measure
from support.hosts import obstacle

pytestmark = pytest.mark.timeout(300)  # on an idle machine, each test takes about 50 s

TESTS: Final = Path(__file__).parents[1]
NODES: Final = ("a", "b", "c")
# Node `a` is not on the lost host, because it has the only worker for one of the queues. No other node could run the
# tasks of that queue.
LOST: Final = "b"
SHOWN_CHARACTERS: Final = 20_000


@pytest.fixture
def earlier() -> str:
    """Return the commit of the previous version. Skips the test if there is none, for example in a copy of the
    repository without its history.
    """
    try:
        return earlier_commit()
    except NoEarlierVersion as error:
        pytest.skip(str(error))


def soaked(folder: Path, profile: str, seconds: float, *faults: str) -> Case:
    """Run the soak with exactly these faults, and return the recorded evidence. Fails if the soak reports a finding."""
    words = [word for fault in faults for word in ("--fault", fault)]
    command = ["--profile", profile, f"--seconds={seconds:g}", "--seed=1", "--server=valkey", "--keep"]
    done = subprocess.run(
        [sys.executable, "-m", "soak", *command, f"--folder={folder}", *words],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-SHOWN_CHARACTERS:]
    return Case(read_evidence(folder))


def repeated_by_faults(case: Case) -> dict[str, str]:
    """Return the tasks that were started again because of a fault. The result maps the id of each task to the first
    fault that caused another start.
    """
    found: dict[str, str] = {}
    for history in case.histories.values():
        for run, following in pairwise(history.runs):
            cause = cause_of(case, history, run, following)
            if cause is not None and cause.startswith("fault "):
                found.setdefault(history.id, cause)
    return found


def spans(case: Case, *faults: Fault) -> list[Span]:
    """Return all the spans during which one of these faults was active, in order."""
    return sorted(case.causes.of(*faults), key=lambda span: span.begin)


class Moved(NamedTuple):
    """A task that was running on the host that was lost. Times are in seconds after the loss."""

    queue: str
    back_seconds: float  # the time until the task was back in its lane
    start_seconds: float  # the time until the task was started on another host


def moved(case: Case, lost: Span) -> list[Moved]:
    """Return the tasks that were running on the lost host when it was lost."""
    node = case.causes.node_in_force(lost.target, lost.begin)
    found = []
    for history in case.histories.values():
        for run, following in pairwise(history.runs):
            if run.start.node == node and run.finished is None and following.began > lost.begin:
                back = case.given_back(history.id, lost.begin, following.began)
                found.append(Moved(run.start.queue, back - lost.begin, following.began - lost.begin))
    return found


def test_a_partition_and_a_lost_host_lose_and_repeat_no_task(tmp_path: Path, measured: Measure) -> None:
    if reason := obstacle():
        pytest.skip(reason)
    # One of the partitions is shorter than a lease, and the other one is longer.
    partitions = ("partition c 1 2", "partition c 8 9")
    case = soaked(tmp_path, "hosts", 35, *partitions, f"lose_host {LOST} 22 13")
    short, long = spans(case, Fault.PARTITION)
    causes = list(repeated_by_faults(case).values())
    measured("tasks started again after the long partition", causes.count(str(long)))
    assert str(short) not in causes
    [lost] = spans(case, Fault.LOSE_HOST)
    tasks = moved(case, lost)
    # Several of these tasks may have been running in one worker at once. They are now started one by one, so the test
    # limits only the time until they are back in their lanes.
    elsewhere = [task.start_seconds for task in tasks if task.queue not in case.evidence.setup.apart]
    assert tasks, "the lost host ran nothing, so this test shows nothing"
    measured("tasks of the lost host", len(tasks))
    measured("seconds until all of them were in their lanes", max(task.back_seconds for task in tasks))
    measured("seconds until the last one of a plain queue ran elsewhere", max(elsewhere, default=0.0))
    limit = case.evidence.setup.lease_seconds + 2.0
    assert max([*elsewhere, *(task.back_seconds for task in tasks)]) <= limit


def test_a_rolling_upgrade_and_rollback_lose_and_repeat_no_task(
    tmp_path: Path, earlier: str, measured: Measure
) -> None:
    assert earlier
    profile = "versions" if obstacle() else "hosts"
    upgrades = [f"upgrade {node} {3 + 3 * number} 0" for number, node in enumerate(NODES)]
    rollbacks = [f"roll_back {node} {14 + 3 * number} 0" for number, node in enumerate(NODES)]
    case = soaked(tmp_path, profile, 23, *upgrades, *rollbacks)
    changes = spans(case, Fault.UPGRADE, Fault.ROLL_BACK)
    assert [change.target for change in changes] == [*NODES, *NODES]
    assert all(one.end <= other.begin for one, other in pairwise(changes)), "one node after the other"
    assert repeated_by_faults(case) == {}
    starts = [mark.is_earlier for mark in case.evidence.ran]
    measured("records of the earlier version", sum(starts))
    measured("records of this version", len(starts) - sum(starts))
    for one, other in (changes[0:2], changes[3:5]):  # between these two changes, each version runs on at least one node
        between = [mark for mark in case.evidence.ran if one.end <= mark.boot <= other.end]
        assert {mark.is_earlier for mark in between} == {True, False}
