"""What workers are told is worked out once for each configuration, and anew for another."""

from rota.child.settings import settings_to_json
from rota.protocol.store import pack_tiers
from rota_supervisor.config.model import Config, PoolConfig
from rota_supervisor.config.resolve import worker_settings
from rota_supervisor.master.core.settings import WorkerSettingsCache

POOLS = {"mail": PoolConfig(workers=2, queues=("a",)), "rest": PoolConfig(workers=1, queues=("b",))}


def test_each_pool_is_told_its_own_settings_and_tiers() -> None:
    config = Config(tiers=(("a",), ("b",)), pools=POOLS)
    told = WorkerSettingsCache().of(config)
    assert told.keys() == {"mail", "rest"}
    for pool, settings in worker_settings(config).items():
        assert told[pool].settings == settings
        assert told[pool].text == settings_to_json(settings)
        assert told[pool].tiers == pack_tiers(settings.tiers)


def test_the_same_configuration_is_worked_out_once_and_another_anew() -> None:
    told = WorkerSettingsCache()
    first, second = Config(), Config(tiers=(("other",),))
    before = told.of(first)
    assert told.of(second) != before
    assert told.of(first) is before


def test_a_configuration_long_gone_is_worked_out_again_and_nothing_piles_up() -> None:
    told = WorkerSettingsCache()
    first = Config()
    before = told.of(first)
    for number in range(10):
        told.of(Config(tiers=((f"q{number}",),)))
    assert told.of(first) is not before
    assert told.of(first) == before
