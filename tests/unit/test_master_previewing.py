"""The preview of a reload."""

from typing import Any

import msgspec
import pytest

from rota.child.child_settings import WorkerSettings
from rota_supervisor.config.errors import Fault
from rota_supervisor.config.loader import Loaded
from rota_supervisor.config.model import (
    AdoptConfig,
    Alerts,
    ConditionConfig,
    Config,
    DeadConfig,
    Http,
    LeaseConfig,
    Limits,
    Log,
    Metrics,
    PoolConfig,
    QueueConfig,
    SigningConfig,
    TaskConfig,
)
from rota_supervisor.config.resolution import WorkerRange
from rota_supervisor.layout import Role
from rota_supervisor.master.core.generations import Generation, Rollout
from rota_supervisor.master.core.process_settings import Surroundings, worker_settings
from rota_supervisor.master.core.requests import preview_of
from rota_supervisor.master.core.state import MasterState, Reload
from rota_supervisor.master.core.targets import Scaling
from support.cores import picture

POOLS = {"mail": PoolConfig(workers=2, queues=("sold",)), "rest": PoolConfig(workers=4, queues=("default", "low"))}
OFFICE_HOURS = {"office": ConditionConfig(hours="Mon-Fri 08:00-18:00 UTC")}
ADOPTED = "adopt.queue:mail"
BASE = Config(imports=("tasks",), tiers=(("sold",), ("default", "low")), pools=POOLS)


def _changed(**values: object) -> Config:
    return msgspec.structs.replace(BASE, **values)


def _pools(**values: PoolConfig) -> Config:
    return _changed(pools={**POOLS, **values})


ORIGINS = {
    "imports": "file rota.toml",
    "pools.mail.workers": "environment ROTA_POOLS__MAIL__WORKERS",
    **{
        f"pools.{pool}.{key}": "file rota.toml"
        for pool, key in (("mail", "queues"), ("rest", "queues"), ("new", "queues"))
    },
    "conditions.office.hours": "file rota.toml",
    "queues.sold.weight": "file rota.toml",
    "queues.low.condition": "file rota.toml",
    "conditions.night.lua": "file rota.toml",
    "adopt.jobs.queue": "file rota.toml",
    "tasks.note.retries": "file rota.toml",
}


def _preview(
    before: Generation, loaded: Loaded, faults: list[Fault] | None = None, scaling: Scaling | None = None
) -> dict[str, Any]:
    """Return the preview of a fleet in which this generation is in force."""
    state = MasterState.first(Surroundings(), loaded, 0.0)
    state.wanted.rollout = Rollout(before, None)
    state.wanted.scaling = scaling or Scaling()
    state.keep_codes(state.rollout.generations)
    state.leases.due_at = 10.0
    state.leases.seconds = 5.0
    state.children.add(Role.WORKER, "mail", 1, 1, 0.0)
    kept = picture(state)
    preview = preview_of(state, Reload(1, only_shown=True, loaded=loaded), faults or [], 0.0)
    assert picture(state) == kept, "a preview changes nothing of the master that runs"
    return preview


def _previewed(new: Config, faults: list[Fault] | None = None, scaling: Scaling | None = None) -> dict[str, Any]:
    return _preview(Generation(1, 1, BASE, ORIGINS), Loaded(new, ORIGINS, ()), faults, scaling)


def _steps(new: Config, scaling: Scaling | None = None) -> list[str]:
    preview = _previewed(new, scaling=scaling)
    plan: list[str] = preview["plan"][len(preview["changes"]) :]
    return plan


REPLACED = "each worker is replaced, one at a time"


@pytest.mark.parametrize(
    ("new", "steps"),
    [
        (BASE, ["nothing changes"]),
        (
            _changed(limits=Limits(drain_seconds=5)),
            ["no process is replaced, because only the master uses the changed settings"],
        ),
        (_pools(mail=PoolConfig(5, ("sold",))), ["pool mail: 2 -> 5 workers, 3 started"]),
        (_pools(mail=PoolConfig(1, ("sold",))), ["pool mail: 2 -> 1 worker, 1 drained"]),
        (_pools(new=PoolConfig(3, ("low",))), ["pool new: 3 workers will be started, because the pool is new"]),
        (
            _changed(pools={"rest": POOLS["rest"]}),
            ["pool mail: its 2 workers will be drained, because the pool is removed"],
        ),
        (_pools(rest=PoolConfig(4, ("default", "low", "sold"))), [f"pool rest: {REPLACED}: pools.rest.queues"]),
        (
            _changed(queues={"sold": QueueConfig(weight=2.0)}),
            [f"pool mail: {REPLACED}: queues.sold.weight", "exporter: it is replaced: queues.sold.weight"],
        ),
        (
            _changed(tasks={"note": TaskConfig(retries=1)}),
            [f"pool {pool}: {REPLACED}: tasks.note.retries" for pool in POOLS],
        ),
        (_changed(limits=Limits(max_tasks=9)), [f"pool {pool}: {REPLACED}: limits.max_tasks" for pool in POOLS]),
        (
            _changed(queues={"low": QueueConfig(condition="night")}, conditions={"night": ConditionConfig(lua="true")}),
            [f"pool rest: {REPLACED}: queues.low.condition"],
        ),
        (_changed(dead=DeadConfig(max_count=1)), ["pollers: each poller is replaced: dead.max_count"]),
        (
            _changed(adopt={"queue:mail": AdoptConfig()}),
            [f"pollers: each poller is replaced: {ADOPTED}.queue, {ADOPTED}.task"],
        ),
        (
            _changed(alerts=Alerts(forgotten_seconds=60.0)),
            ["exporter: it is replaced: alerts.forgotten_seconds"],
        ),
        (
            _changed(conditions=OFFICE_HOURS),
            ["no process is replaced, because only the master uses the changed settings"],
        ),
        (_changed(pollers=2), ["pollers: 1 -> 2"]),
        (_changed(http=Http(listen="")), ["exporter: it is stopped: http.listen"]),
        (_changed(http=Http(listen="127.0.0.1:1")), ["exporter: it is replaced: http.listen"]),
        (
            _pools(mail=PoolConfig(0, ("sold", "low"))),
            ["pool mail: 2 -> 0 workers, 2 drained"],  # no worker is replaced
        ),
        (
            _changed(log=Log(level="debug")),
            [
                *(f"pool {pool}: {REPLACED}: log.level" for pool in POOLS),
                "pollers: each poller is replaced: log.level",
                "exporter: it is replaced: log.level",
            ],
        ),
        (
            _changed(imports=("tasks", "more")),
            [
                "a new process imports tasks, more; if that fails, the reload is refused (a preview imports nothing)",
                *(f"pool {pool}: {REPLACED}: new code" for pool in POOLS),
            ],
        ),
    ],
)
def test_the_preview_of_a_reload_lists_each_step_with_its_reason(new: Config, steps: list[str]) -> None:
    assert _steps(new) == steps


def test_a_changed_condition_replaces_only_the_pool_of_its_queue() -> None:
    after = _changed(conditions=OFFICE_HOURS, queues={"sold": QueueConfig(condition="office")})
    given = {"queues.sold.condition": "file", "pools.mail.queues": "file", "pools.rest.queues": "file"}
    plan = _preview(Generation(1, 1, BASE, given), Loaded(after, given, ()))["plan"]
    assert [line for line in plan if "replaced" in line] == [f"pool mail: {REPLACED}: queues.sold.condition"]


def test_a_preview_does_not_replace_a_disabled_exporter() -> None:
    before = _changed(http=Http(listen=""))
    after = msgspec.structs.replace(before, metrics=Metrics(max_series=500))
    preview = _preview(Generation(1, 1, before, ORIGINS), Loaded(after, ORIGINS, ()))
    assert preview["plan"][-1] == "no process is replaced, because only the master uses the changed settings"


def test_a_preview_shows_each_changed_key_with_both_values_and_its_origin() -> None:
    new = _pools(mail=PoolConfig(3, ("sold",)))
    preview = _previewed(msgspec.structs.replace(new, imports=("a", "b")))
    assert preview["changes"] == [
        {"key": "imports", "old": ("tasks",), "new": ("a", "b"), "origin": "file rota.toml"},
        {"key": "pools.mail.workers", "old": 2, "new": 3, "origin": "environment ROTA_POOLS__MAIL__WORKERS"},
    ]
    assert preview["plan"][:2] == [
        'imports: ["tasks"] -> ["a", "b"] (file rota.toml)',
        "pools.mail.workers: 2 -> 3 (environment ROTA_POOLS__MAIL__WORKERS)",
    ]


def test_a_preview_does_not_show_changed_secrets() -> None:
    old = Generation(1, 1, _changed(redis_url="redis://:first@localhost/0"))
    new = Loaded(_changed(redis_url="redis://:second@localhost/0"), {"redis_url": "file"}, ())
    preview = _preview(old, new, [Fault("redis_url", "cannot be changed by a reload")])
    assert [each["key"] for each in preview["changes"]] == ["redis_url"]
    assert "first" not in str(preview)
    assert "second" not in str(preview)


def test_a_preview_keeps_an_operators_count_until_the_file_changes_it() -> None:
    scaling = Scaling().with_count("mail", 7, [{"mail": WorkerRange(2, 2), "rest": WorkerRange(4, 4)}])
    assert _steps(_changed(limits=Limits(drain_seconds=5)), scaling) == [
        "no process is replaced, because only the master uses the changed settings"
    ]
    assert _steps(_pools(mail=PoolConfig(5, ("sold",))), scaling) == ["pool mail: 7 -> 5 workers, 2 drained"]


def test_a_preview_of_a_faulty_configuration_has_no_steps() -> None:
    preview = _previewed(_changed(namespace="other"), [Fault("namespace", "cannot be changed by a reload")])
    assert preview["result"] == "failure"
    assert preview["faults"] == ["namespace: cannot be changed by a reload"]
    assert preview["plan"] == ['namespace: "rota" -> "other" (default)']


def test_a_preview_explains_every_changed_worker_setting_by_its_key() -> None:
    """A field without a key would be shown under its internal name, which operators do not know."""
    config = Config(
        tiers=(("default",),),
        pools={"default": PoolConfig(concurrency=2)},
        queues={"default": QueueConfig(weight=2.0, lag_objective_seconds=3.0)},
        tasks={"note": TaskConfig(retries=1)},
        signing=SigningConfig({"k": "env:KEY"}, "k"),
        limits=Limits(
            time_limit_seconds=1.0,
            beat_seconds=2.0,
            max_tasks=1,
            max_tasks_jitter=0.5,
            max_rss_mb=1,
            max_payload_kb=1,
            max_result_kb=1,
        ),
        lease=LeaseConfig(seconds=60.0),
        metrics=Metrics(lag_objective_seconds=1.0),
        log=Log(level="debug"),
    )
    before = worker_settings(Config())["default"]
    after = worker_settings(config)["default"]
    same = {each for each in WorkerSettings.__slots__ if getattr(before, each) == getattr(after, each)}
    assert same == {"server", "pool", "durability"}  # the settings that a reload cannot change
    keys = ("queues.default.weight", "queues.default.lag_objective_seconds", "tasks.note.retries")
    given = dict.fromkeys((*keys, "pools.default.concurrency"), "")
    preview = _preview(Generation(1, 1, Config()), Loaded(config, given, ()))
    [line] = [line for line in preview["plan"] if REPLACED in line]
    assert all("." in reason for reason in line.partition(f"{REPLACED}: ")[2].split(", "))
