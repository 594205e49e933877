"""The children that a changed configuration affects, and the way in which one generation replaces another."""

import msgspec
import pytest

from rota_supervisor.config.model import (
    AdoptConfig,
    Config,
    Control,
    DeadConfig,
    Http,
    Limits,
    Log,
    PoolConfig,
    QueueConfig,
    Restarts,
    SigningConfig,
    TaskConfig,
)
from rota_supervisor.config.rules import unknown_tasks, unserved_queues
from rota_supervisor.master.core.generations import (
    Rollout,
    change_between,
    faults_of_change,
)

BASE = Config(workers=4, imports=("tasks",), tiers=(("high",), ("low", "default")))


def _changed(**values: object) -> Config:
    return msgspec.structs.replace(BASE, **values)


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (BASE, []),
        (_changed(workers=8), ["counts"]),
        (_changed(pollers=2), ["counts"]),
        (_changed(imports=("tasks", "more")), ["workers"]),
        (_changed(tiers=(("high",), ("default",))), ["workers", "exporter"]),
        (_changed(queues={"low": QueueConfig(weight=3)}), ["workers", "exporter"]),
        (_changed(limits=Limits(max_tasks=5)), ["workers"]),
        (_changed(limits=Limits(drain_seconds=5)), ["rest"]),
        (_changed(restarts=Restarts(crash_limit=9)), ["pollers"]),
        (_changed(dead=DeadConfig(max_count=1)), ["pollers"]),
        (_changed(http=Http(listen="127.0.0.1:1")), ["listen"]),
        (_changed(log=Log(level="debug")), ["workers", "pollers", "exporter"]),
    ],
)
def test_a_changed_setting_affects_only_the_children_that_depend_on_it(new: Config, words: list[str]) -> None:
    assert change_between(BASE, new).changed_parts == words


def test_an_added_or_removed_pool_does_not_affect_other_pools() -> None:
    one = _changed(workers=None, pools={"a": PoolConfig(workers=1)})
    two = _changed(workers=None, pools={"a": PoolConfig(workers=1), "b": PoolConfig(workers=2)})
    assert change_between(one, two).changed_parts == ["counts"]
    assert change_between(two, one).changed_parts == ["counts"]


def test_a_reload_refuses_changed_settings_that_need_a_restart() -> None:
    new = _changed(
        namespace="other", redis_url="redis://elsewhere", control=Control(socket="/run/x"), durability="wait"
    )
    faults = faults_of_change(BASE, new)
    assert [fault.path for fault in faults] == ["namespace", "redis_url", "control", "durability"]
    assert all("start it again" in fault.message for fault in faults)


_OLD, _NEW = {"old": "env:OLD"}, {"new": "env:NEW"}


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        (SigningConfig(), SigningConfig(_OLD, "old"), None),
        (SigningConfig(), SigningConfig(_OLD, "old", required=True), "signing.required"),
        (SigningConfig(_OLD, "old"), SigningConfig(_OLD, "old", required=True), None),
        (SigningConfig(_OLD, "old"), SigningConfig(_OLD | _NEW, "old"), None),
        (SigningConfig(_OLD, "old"), SigningConfig(_OLD | _NEW, "new"), "signing.sign_with"),
        (SigningConfig(_OLD | _NEW, "old"), SigningConfig(_OLD | _NEW, "new"), None),
        (SigningConfig(_OLD | _NEW, "old"), SigningConfig(_NEW, "new"), "signing.keys"),
        (SigningConfig(_OLD | _NEW, "new"), SigningConfig(_NEW, "new"), None),
        (SigningConfig(_NEW, "new", required=True), SigningConfig(), None),
    ],
)
def test_a_reload_refuses_steps_of_a_key_rotation_in_the_wrong_order(
    before: SigningConfig, after: SigningConfig, fault: str | None
) -> None:
    faults = faults_of_change(_changed(signing=before), _changed(signing=after))
    assert [each.path for each in faults] == ([fault] if fault else [])


def test_a_reload_finds_queues_no_pool_serves_and_unknown_task_names() -> None:
    config = _changed(tasks={})
    assert [fault.message.split("'")[1] for fault in unserved_queues(config, {"a": "low", "b": "nowhere"})] == [
        "nowhere"
    ]
    assert unknown_tasks(config, {"a": "low"}) == []
    named = _changed(tasks={"b": TaskConfig()}, adopt={"jobs": AdoptConfig("low", "c"), "queue:low": AdoptConfig()})
    assert [path for path, _ in unknown_tasks(named, {"a": "low"})] == ["tasks.b", "adopt.jobs.task"]


def test_a_reloaded_generation_is_in_force_only_once_promoted() -> None:
    first = Rollout.first(BASE, {})
    assert first.in_force.number == 1
    working = first.promote().commit()
    loading = working.with_candidate(_changed(workers=9), {}, proven=False)
    assert (loading.in_force.number, loading.latest.number) == (1, 2)
    assert [generation.number for generation in loading.generations] == [1, 2]
    assert loading.promote().in_force.number == 2
    assert loading.promote().commit().generations == (loading.latest,)


def test_a_failed_generation_is_undone_and_its_number_is_not_reused() -> None:
    working = Rollout.first(BASE, {}).promote().commit()
    back = working.with_candidate(BASE, {}, proven=False).roll_back()
    assert back.generations == working.generations
    assert back.with_candidate(BASE, {}, proven=False).latest.number == 3


def test_a_later_reload_replaces_a_generation_that_is_not_yet_proven() -> None:
    working = Rollout.first(BASE, {}).promote().commit()
    rolling = working.with_candidate(BASE, {}, proven=False).promote()
    assert [each.number for each in rolling.with_candidate(BASE, {}, proven=False).generations] == [1, 3]
    assert [each.number for each in rolling.with_candidate(BASE, {}, proven=True).generations] == [2, 3]


def test_a_pool_added_during_a_rollout_has_the_generation_of_the_rollout() -> None:
    working = Rollout.first(BASE, {}).promote().commit()
    rolling = working.with_candidate(_changed(workers=3), {}, proven=False, pools=["default"]).promote()
    number = rolling.latest.number
    grown = rolling.with_config(_changed(workers=4), {}, ["late"]).in_force
    assert (grown.of_pool("default"), grown.of_pool("late"), grown.code) == (number, number, 1)
    assert working.with_config(_changed(workers=4), {}, ["late"]).in_force.of_pool("late") == 1
