"""A fleet follows its file at HUP, and a file that cannot be used changes nothing."""

import pytest

from bench import until
from fleets import Fleets, RunningFleet

SUCCESSFUL = "rota_config_last_reload_successful"
HELD = tuple(f"held{number}" for number in range(6))


def others(fleet: RunningFleet) -> dict[str, dict[int, int]]:
    """The children that are no workers."""
    return {role: fleet.children(role) for role in ("zygote", "poller", "exporter")}


def test_the_pool_follows_the_worker_count_and_what_runs_goes_on(fleets: Fleets) -> None:
    fleet = fleets.start(workers=4)
    four, rest = fleet.workers(), others(fleet)
    starts = {label: fleet.hold(label) for label in HELD[:3]}

    fleet.edit(workers=8)
    fleet.hup()
    eight = fleet.wait_for_workers(8)
    assert four < eight
    assert others(fleet) == rest

    starts |= {label: fleet.hold(label) for label in HELD[3:]}
    fleet.edit(workers=2)
    fleet.hup()
    until(lambda: fleet.metrics().total("rota_workers_desired") == 2, "two workers asked for")
    until(lambda: len(fleet.workers()) == 2, "two workers that stay")
    assert [line.label for line in fleet.journal("end")] == []
    for label in HELD:
        fleet.release(label)
    fleet.wait_for("end", len(HELD))
    two = fleet.wait_for_workers(2)
    assert two < eight
    assert others(fleet) == rest
    ends = {line.label: line.pid for line in fleet.journal("end")}
    assert ends == {label: start.pid for label, start in starts.items()}
    assert len(fleet.journal("start")) == len(HELD)
    assert fleet.metrics().total(SUCCESSFUL) == 1


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ('workers = "many"', "workers", "many"),
        ("workers = -2", "workers", "-2"),
        ("workerz = 3", "workerz", 'did you mean "workers"'),
        ('tiers = [["default", "twice"], ["twice"]]', "tiers[1][0]", "twice"),
    ],
)
def test_a_broken_file_changes_nothing_and_the_log_names_key_and_value(
    fleets: Fleets, text: str, path: str, said: str
) -> None:
    fleet = fleets.start()
    workers, rest = fleet.workers(), others(fleet)
    good = (fleet.folder / "rota.toml").read_text()

    fleet.write(f"{text}\n{good.replace('workers = 2', '') if path == 'workers' else good}")
    fleet.hup()
    until(lambda: fleet.metrics().total(SUCCESSFUL) == 0, "a reload refused")
    [rejected] = fleet.log("config.rejected")
    assert rejected["path"] == path
    assert said in rejected["error"]
    assert (fleet.workers(), others(fleet)) == (workers, rest)

    fleet.client.enqueue("note", args=["after"], queue="default")
    fleet.wait_for("end", label="after")
    fleet.edit(workers=3)
    fleet.hup()
    fleet.wait_for_workers(3)
    assert fleet.metrics().total(SUCCESSFUL) == 1
    assert fleet.metrics().total("rota_config_reloads_total", result="failure") == 1


def test_a_file_that_is_no_toml_changes_nothing(fleets: Fleets) -> None:
    fleet = fleets.start()
    workers = fleet.workers()
    fleet.write("workers = = 3\n")
    answered = fleet.rota("reload")
    assert answered.returncode == 78
    fleet.hup()
    until(lambda: fleet.log("config.rejected"))
    assert "line 1" in fleet.log("config.rejected")[0]["error"]
    assert fleet.workers() == workers


def test_a_module_that_does_not_import_changes_nothing(fleets: Fleets) -> None:
    fleet = fleets.start()
    workers = fleet.workers()
    fleet.edit(imports=["tasks", "nowhere"])
    answered = fleet.rota("reload")
    assert answered.returncode == 78
    assert "nowhere" in answered.stderr
    assert fleet.metrics().total(SUCCESSFUL) == 0
    [rejected] = fleet.log("config.rejected")
    assert "nowhere" in rejected["path"] + rejected["error"]
    assert fleet.workers() == workers


def test_new_code_reaches_the_workers_without_a_pause(fleets: Fleets) -> None:
    fleet = fleets.start()
    before = fleet.workers()
    (fleet.folder / "more.py").write_text(
        "import rota\nimport tasks\n\n@rota.task\ndef extra():\n    tasks.write('extra', '')\n"
    )
    fleet.edit(imports=["tasks", "more"])
    assert fleet.rota("reload").returncode == 0
    fleet.client.enqueue("extra", queue="default")
    until(lambda: fleet.wait_for_workers(2).isdisjoint(before), "new workers only")
    fleet.wait_for("extra")


def test_a_killed_child_of_any_role_is_replaced(fleets: Fleets) -> None:
    fleet = fleets.start()
    for role in ("poller", "exporter", "zygote"):
        fleet.kill_child(role)
        until(fleet.is_whole, "a whole fleet")
    fleet.client.enqueue("note", args=["due"], queue="default", delay=0.1)
    fleet.wait_for("end", label="due")
