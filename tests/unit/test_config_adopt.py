"""`[adopt.NAME]`: the keys from which a fleet adopts items, and the queues of these items."""

from pathlib import Path

import pytest

from rota.child.child_settings import poller_settings_from_json, settings_to_json
from rota.protocol.replies import LegacySource
from rota_supervisor.config.errors import ConfigError
from rota_supervisor.config.loader import Flags, Sources, as_toml, load_config
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolution import legacy_sources
from rota_supervisor.config.rules import MOST_SOURCES
from rota_supervisor.master.core.process_settings import poller_settings

TIERS = 'namespace = "shop"\ntiers = [["email"], ["default"]]\n'
WHOLE = TIERS + '[adopt."queue:email"]\n[adopt.jobs]\nqueue = "default"\ntask = "send"\n[adopt."delayed:"]\n'
SOURCES = (LegacySource("queue:email", "email"), LegacySource("jobs", "default", "send"), LegacySource("delayed:"))


def loaded(folder: Path, text: str, tiers: tuple[tuple[str, ...], ...] = ()) -> Config:
    file = folder / "rota.toml"
    file.write_text(text)
    return load_config(Sources(file, True, flags=Flags(tiers=tiers))).config


def test_a_legacy_list_feeds_the_queue_of_its_name_or_the_configured_one(tmp_path: Path) -> None:
    assert legacy_sources(loaded(tmp_path, WHOLE)) == SOURCES


def test_pollers_receive_the_configured_legacy_lists_unchanged(tmp_path: Path) -> None:
    told = poller_settings_from_json(settings_to_json(poller_settings(loaded(tmp_path, WHOLE), 1)))
    assert told.adopts == SOURCES


def test_a_printed_adopt_section_can_be_read_again(tmp_path: Path) -> None:
    file = tmp_path / "rota.toml"
    file.write_text(WHOLE)
    found = load_config(Sources(file, True))
    assert loaded(tmp_path, as_toml(found, origins=True)).adopt == found.config.adopt


def test_the_option_q_excludes_legacy_lists_of_other_queues(tmp_path: Path) -> None:
    kept = legacy_sources(loaded(tmp_path, WHOLE, (("default",),)))
    assert [source.key for source in kept] == ["jobs", "delayed:"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[adopt."queue:emial"]', 'adopt.queue:emial: queue "emial" is in no tier, did you mean "email"?'),
        ('[adopt."queue:zzz"]', 'adopt.queue:zzz: queue "zzz" is in no tier: add it to tiers, or set queue to a queue'),
        ('[adopt.jobs]\nqueue = "low"', 'adopt.jobs.queue: queue "low" is in no tier: add it to tiers'),
        ('[adopt."queue:x y"]', "adopt.queue:x y: queue name 'x y' is not valid"),
        ('[adopt.jobs]\ntask = "send"', "adopt.jobs.queue: items that are only the arguments of a task name no queue"),
        ('[adopt.jobs]\nqueue = "email"\ntask = "a b"', "adopt.jobs.task: task name 'a b' is not valid"),
        ('[adopt."{shop}:queue:email"]\nqueue = "email"', "this key belongs to the fleet itself"),
        ('[adopt.""]', "expected a key with 1 to 200 characters"),
        (f'[adopt."{"k" * 201}"]', "expected a key with 1 to 200 characters"),
        ('[adopt.jobs]\nqueues = "email"', 'adopt.jobs.queues: unknown key, did you mean "queue"?'),
        ('adopt = ["queue:email"]', "adopt: expected a table, as [adopt], got a list"),
        ("\n".join(f"[adopt.k{number}]" for number in range(MOST_SOURCES + 1)), "expected at most 50 keys"),
    ],
)
def test_an_invalid_legacy_list_is_reported_with_advice(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, TIERS + text)
    assert message in str(caught.value)
