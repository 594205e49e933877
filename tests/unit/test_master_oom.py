"""Where the kernel counts out-of-memory kills."""

from pathlib import Path

import pytest

from rota_supervisor.master.oom import counter_of

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
def test_the_counter_is_that_of_the_own_group(tmp_path: Path, groups: str, there: list[str], found: str | None) -> None:
    for path in there:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    assert counter_of(groups, tmp_path) == (None if found is None else tmp_path / found)
