"""The settings that are passed to a child. They arrive unchanged, and their text form does not show the password."""

from hypothesis import given
from hypothesis import strategies as st

from rota.child.child_settings import (
    PollerSettings,
    ServerSettings,
    TaskOverride,
    WorkerSettings,
    poller_settings_from_json,
    settings_to_json,
    worker_settings_from_json,
)
from rota.protocol.tiers import Domain, QueueShare
from support.child_settings import poller_settings, worker_settings

_SERVER = ServerSettings("redis://:hunter2@localhost/0", "shop")


_SECONDS = st.floats(min_value=0, max_value=1e9)
_NAMES = st.text("aZ9_.:-", min_size=1, max_size=16)
_SHARES = st.builds(QueueShare, name=_NAMES, weight=_SECONDS)
_WORKERS = st.builds(
    worker_settings,
    server=st.builds(ServerSettings),
    pool=_NAMES,
    tiers=st.lists(st.builds(Domain, _NAMES, st.lists(_SHARES, max_size=3).map(tuple)), max_size=3).map(tuple),
    lease_seconds=_SECONDS,
    max_tasks=st.integers(min_value=0),
    overrides=st.dictionaries(_NAMES, st.builds(TaskOverride, st.none() | st.integers(0, 50), st.none() | _SECONDS)),
    lag_objectives=st.dictionaries(_NAMES, _SECONDS),
)
_POLLERS = st.builds(poller_settings, server=st.builds(ServerSettings), rank=st.integers(0, 1), lease_seconds=_SECONDS)


@given(_WORKERS)
def test_a_workers_settings_are_read_back_as_they_were_written(settings: WorkerSettings) -> None:
    assert worker_settings_from_json(settings_to_json(settings)) == settings


@given(_POLLERS)
def test_a_pollers_settings_are_read_back_as_they_were_written(settings: PollerSettings) -> None:
    assert poller_settings_from_json(settings_to_json(settings)) == settings


def test_settings_in_a_log_show_no_password() -> None:
    assert "hunter2" not in repr(poller_settings(_SERVER))
    assert "hunter2" not in repr(worker_settings(server=_SERVER))


def test_the_settings_of_a_worker_contain_the_whole_redis_url() -> None:
    settings = worker_settings(server=_SERVER)
    assert worker_settings_from_json(settings_to_json(settings)).server.redis_url == _SERVER.redis_url
