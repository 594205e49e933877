"""The settings of child processes, which are derived from the configuration."""

import os
from typing import Any

import pytest

from rota.child.child_settings import settings_to_json, worker_settings_from_json
from rota.protocol.tiers import QueueShare
from rota.server.connection import LONG_PARK_SECONDS, PARK_SECONDS
from rota.tasks.options import Rate, parse_rate
from rota_supervisor.config.model import Config, LeaseConfig, Limits, PoolConfig, QueueConfig, TaskConfig
from rota_supervisor.config.resolution import WorkerRange, pattern_domains, pool_sizes, taken_queues, warnings_of_pools
from rota_supervisor.master.core.process_settings import poller_settings, worker_settings

TIERS = (("reset",), ("sold", "expired"), ("default",))


def test_without_pools_a_default_pool_serves_every_queue() -> None:
    settings = worker_settings(Config(tiers=TIERS, workers=3))

    assert list(settings) == ["default"]
    assert [tier.name for tier in settings["default"].tiers] == ["reset", "expired,sold", "default"]
    assert pool_sizes(Config(workers=3)) == {"default": WorkerRange(3, 3)}


def test_the_default_pool_has_one_worker_per_processor() -> None:
    assert pool_sizes(Config())["default"].least == os.cpu_count()


def test_a_pool_may_have_no_workers() -> None:
    assert pool_sizes(Config(workers=0)) == {"default": WorkerRange(0, 0)}


def test_a_pool_serves_its_queues_in_the_order_of_the_tiers() -> None:
    pools = {"mail": PoolConfig(workers=2, queues=("default", "sold")), "all": PoolConfig()}

    settings = worker_settings(Config(tiers=TIERS, pools=pools))

    assert [tier.name for tier in settings["mail"].tiers] == ["sold", "default"]
    assert [tier.name for tier in settings["all"].tiers] == ["reset", "expired,sold", "default"]


def test_pools_with_the_same_queues_in_any_order_share_their_tiers() -> None:
    pools = {
        "one": PoolConfig(queues=("sold", "expired")),
        "two": PoolConfig(queues=("expired", "sold")),
        "all": PoolConfig(),
    }

    settings = worker_settings(Config(tiers=TIERS, pools=pools))

    assert settings["one"].tiers == settings["two"].tiers == settings["all"].tiers[1:2]


def test_workers_receive_the_weight_cap_and_rate_of_each_queue() -> None:
    queues = {"sold": QueueConfig(weight=3, cap=10, rate="100/m")}

    [_, tier, _] = worker_settings(Config(tiers=TIERS, queues=queues))["default"].tiers

    assert tier.queues == (QueueShare("sold", 3, 10, 600_000, 1), QueueShare("expired"))


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1/h", Rate(3_600_000_000, 1)),
        ("100/m", Rate(600_000, 1)),
        ("10/s", Rate(100_000, 1)),
        ("5000/s", Rate(200, 500)),
        ("999999999/s", Rate(1, 99_999_999)),
    ],
)
def test_a_rate_spreads_task_starts_evenly(text: str, rate: Rate) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "10", "0/s", "-1/s", "1.5/s", "10/d", "10 /s", "\u0661/s", "9999999999/s"])
def test_an_invalid_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a rate"):
        parse_rate(text)


def test_workers_receive_limits_task_overrides_and_lag_objectives() -> None:
    config = Config(
        limits=Limits(time_limit_seconds=60, max_tasks=5),
        tasks={"send": TaskConfig(retries=0)},
        queues={"default": QueueConfig(lag_objective_seconds=5)},
    )

    settings = worker_settings(config)["default"]

    assert (settings.time_limit_seconds, settings.max_tasks) == (60, 5)
    assert settings.overrides["send"].retries == 0
    assert settings.lag_objectives == {"default": 5}


def test_settings_of_a_worker_survive_serialization() -> None:
    config = Config(tiers=TIERS, tasks={"send": TaskConfig(retries=0)}, queues={"sold": QueueConfig(rate="1/s")})
    settings = worker_settings(config)["default"]

    assert worker_settings_from_json(settings_to_json(settings)) == settings


def test_each_poller_receives_its_rank() -> None:
    assert [poller_settings(Config(), rank).rank for rank in (0, 1)] == [0, 1]


def test_queues_of_pools_without_workers_do_not_count_as_served() -> None:
    pools = {"mail": PoolConfig(queues=("b", "a")), "rest": PoolConfig(queues=("*",))}
    config = Config(tiers=(("a",), ("b", "c")), pools=pools)
    assert taken_queues(config, {"mail": 1, "rest": 2}) == ["a", "b", "c"]
    assert taken_queues(config, {"mail": 1, "rest": 0}) == ["a", "b"]
    assert taken_queues(config, {}) == []
    assert taken_queues(Config(workers=3), {"default": 3}) == ["default"]


def test_queues_without_workers_cause_a_warning() -> None:
    pools = {"mail": PoolConfig(workers=0, queues=("a",)), "rest": PoolConfig(queues=("b",))}
    told = warnings_of_pools(Config(tiers=(("a", "b"),), pools=pools))
    assert told == ['no worker takes queue "a": the pools that serve it have no workers (mail)']
    assert warnings_of_pools(Config(workers=0)) == ["no pool has workers, so this node runs no tasks"]
    assert warnings_of_pools(Config(workers=1)) == []


def test_a_pattern_excludes_queues_that_are_listed_elsewhere() -> None:
    config = Config(
        tiers=(("tenant-acme",), ("tenant-*", "default")),
        queues={"tenant-*": QueueConfig(weight=2, cap=5, rate="10/s")},
    )

    settings = worker_settings(config)["default"]

    assert settings.tiers[1].queues == (QueueShare("tenant-*", 2, 5, 100_000, 1), QueueShare("default"))
    assert [tier.excluded for tier in settings.tiers] == [(), ("tenant-acme",)]
    assert pattern_domains(config) == settings.tiers[1:]
    assert worker_settings_from_json(settings_to_json(settings)) == settings


def test_a_pool_can_select_a_pattern_by_its_name() -> None:
    pools = {"own": PoolConfig(workers=2, queues=("tenant-*",)), "all": PoolConfig(workers=0)}
    config = Config(tiers=(("tenant-*",), ("default",)), pools=pools)

    assert [tier.name for tier in worker_settings(config)["own"].tiers] == ["tenant-*"]
    assert taken_queues(config, {"own": 2, "all": 0}) == ["tenant-*"]
    assert warnings_of_pools(config) == [
        'no worker takes queue "default": the pools that serve it have no workers (all)'
    ]
    assert len(pattern_domains(config)) == 1


def test_pollers_receive_the_queues_of_all_tiers_only_if_one_is_a_pattern() -> None:
    assert poller_settings(Config(tiers=TIERS), 0).queues == ()
    assert poller_settings(Config(tiers=(("a", "t-*"),)), 0).queues == ("a", "t-*")


def test_idle_workers_block_longer_if_renewals_are_frequent_and_tasks_single() -> None:
    def park_seconds(**changes: Any) -> float:
        return worker_settings(Config(**changes))["default"].park_seconds

    assert park_seconds() == LONG_PARK_SECONDS
    assert park_seconds(lease=LeaseConfig(seconds=60.0, renew_seconds=15.0)) == PARK_SECONDS
    assert park_seconds(pools={"default": PoolConfig(workers=1, queues=("default",), concurrency=5)}) == PARK_SECONDS
    assert park_seconds(limits=Limits(beat_seconds=6.0)) == 4.0
