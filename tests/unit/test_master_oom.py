"""The kernel's counters of out-of-memory kills."""

from pathlib import Path

import pytest

from rota_supervisor.master.shell.reaper import OomKills, counter_of, warnings_of_oom

V2 = "0::/system.slice/rota.service\n"
V1 = "9:name=systemd:/\n4:cpu,memory:/docker/4f\n0::/\n"
NESTED = "memory/docker/4f/memory.oom_control"
TOP = "memory/memory.oom_control"


@pytest.mark.parametrize(
    ("groups", "there", "found"),
    [
        (V2, ["system.slice/rota.service/memory.events"], "system.slice/rota.service/memory.events"),
        (V2, [], None),
        (
            V1,
            ["memory/docker/4f/memory.oom_control", "memory/memory.oom_control"],
            "memory/docker/4f/memory.oom_control",
        ),
        (V1, ["memory/memory.oom_control"], "memory/memory.oom_control"),
        ("", [], None),
    ],
    ids=["version 2", "version 2 without the controller", "version 1", "version 1 in a container", "none"],
)
def test_the_oom_kill_counter_of_the_masters_control_group_is_found(
    tmp_path: Path, groups: str, there: list[str], found: str | None
) -> None:
    for path in there:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    assert counter_of(groups, tmp_path) == (None if found is None else tmp_path / found)


class Counter:
    """A fake for the kernel's counter file of out-of-memory kills, which a test can set."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kills(0)

    def kills(self, count: int) -> None:
        self.path.write_text(f"oom 9\noom_kill {count}\noom_group_kill 7\n")


@pytest.fixture
def counter(tmp_path: Path) -> Counter:
    return Counter(tmp_path / "memory.events")


def test_each_oom_kill_explains_only_one_death(counter: Counter) -> None:
    seen = OomKills(counter.path)
    assert not seen.claim(1.0)
    counter.kills(2)  # both kills are counted at once, but the master reaps the children one by one
    assert [seen.claim(2.0), seen.claim(2.0), seen.claim(2.0)] == [True, True, False]


@pytest.mark.parametrize(("seconds_later", "explains"), [(5.0, True), (20.0, False)])
def test_an_oom_kill_explains_only_a_death_soon_afterwards(
    counter: Counter, seconds_later: float, explains: bool
) -> None:
    seen = OomKills(counter.path)
    counter.kills(1)
    seen.poll(10.0)
    assert seen.claim(10.0 + seconds_later) is explains


def test_oom_kills_before_the_master_started_explain_no_death(counter: Counter) -> None:
    counter.kills(3)
    assert not OomKills(counter.path).claim(1.0)


def test_a_control_group_that_is_killed_as_a_whole_causes_a_warning(counter: Counter) -> None:
    assert warnings_of_oom(counter.path) == []
    group = counter.path.with_name("memory.oom.group")
    group.write_text("0\n")
    assert warnings_of_oom(counter.path) == []
    group.write_text("1\n")
    [warning] = warnings_of_oom(counter.path)
    assert str(group) in warning
    assert "OOMPolicy=continue" in warning
