"""What workers are told is worked out once for each generation, and anew for another configuration."""

from rota.child.child_settings import settings_to_json
from rota.protocol.tiers import pack_tiers
from rota_supervisor.config.model import Config, PoolConfig
from rota_supervisor.config.resolution import worker_settings
from rota_supervisor.master.core.rollout import Generation, Rollout

POOLS = {"mail": PoolConfig(workers=2, queues=("a",)), "rest": PoolConfig(workers=1, queues=("b",))}


def test_each_pool_is_told_its_own_settings_and_tiers() -> None:
    config = Config(tiers=(("a",), ("b",)), pools=POOLS)
    told = Generation(1, 1, config).pools
    assert told.keys() == {"mail", "rest"}
    for pool, settings in worker_settings(config).items():
        assert told[pool].settings == settings
        assert told[pool].text == settings_to_json(settings)
        assert told[pool].tiers == pack_tiers(settings.tiers)


def test_the_same_configuration_is_worked_out_once_and_another_anew() -> None:
    rollout = Rollout.first(Config(), {}).promote()
    before = rollout.in_force.pools
    assert rollout.commit().in_force.pools is before
    assert rollout.with_config(Config(tiers=(("other",),)), {}).in_force.pools != before
    assert rollout.with_candidate(Config(tiers=(("other",),)), {}, proven=False).latest.pools != before
