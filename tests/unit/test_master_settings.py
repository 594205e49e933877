"""The settings of child processes. They are computed from the keys of the configuration, once per generation."""

import dataclasses
from typing import Any

import pytest

from rota.child.child_settings import settings_to_json
from rota.protocol.tiers import pack_tiers
from rota_supervisor.config.layers import leaves
from rota_supervisor.config.loader import as_values
from rota_supervisor.config.model import Config, PoolConfig
from rota_supervisor.master.core import process_settings
from rota_supervisor.master.core.generations import Generation, Rollout
from rota_supervisor.master.core.process_settings import worker_settings

POOLS = {"mail": PoolConfig(workers=2, queues=("a",)), "rest": PoolConfig(workers=1, queues=("b",))}


def test_each_pool_has_its_own_settings_and_tiers() -> None:
    config = Config(tiers=(("a",), ("b",)), pools=POOLS)
    told = Generation(1, 1, config).pools
    assert told.keys() == {"mail", "rest"}
    for pool, settings in worker_settings(config).items():
        assert told[pool].settings == settings
        assert told[pool].text == settings_to_json(settings)
        assert told[pool].tiers == pack_tiers(settings.tiers)


def test_settings_of_children_are_computed_once_for_each_configuration() -> None:
    rollout = Rollout.first(Config(), {}).promote()
    before = rollout.in_force.pools
    assert rollout.commit().in_force.pools is before
    assert rollout.with_config(Config(tiers=(("other",),)), {}).in_force.pools != before
    assert rollout.with_candidate(Config(tiers=(("other",),)), {}, proven=False).latest.pools != before


_FIXED = {"server", "pool", "durability", "rank", "tick_seconds", "control_socket", "is_standalone"}
"""The settings that no reload changes or that come from no configuration key."""


@pytest.mark.parametrize("kind", list(process_settings.KEYS), ids=lambda kind: kind.__name__)
def test_each_setting_of_a_child_process_is_computed_from_known_keys(kind: type[Any]) -> None:
    known = {path for path, _ in leaves(as_values(Config()))}
    for field in dataclasses.fields(kind):
        keys = process_settings.KEYS[kind].get(field.name, ())
        filled = {f"{section}.{field.name}" for section in process_settings.SECTIONS[kind]} & known
        assert keys or filled or field.name in _FIXED, f"{field.name}: a preview could not name a key for it"
        assert {key for key in keys if not key.endswith(".") and not key.startswith(("pools.", "queues."))} <= known
