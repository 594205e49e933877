"""The queues that match a pattern, and tiers and pools with patterns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.protocol.keys import fits, is_pattern, served_as
from rota.protocol.tiers import Domain, QueueShare, domain_of, settings_of_domain

_BEGINNINGS = st.text("ab-", max_size=4)
_NAMES = st.text("ab-", min_size=1, max_size=4)
_TIERS = st.lists(st.one_of(_NAMES, _BEGINNINGS.map(lambda text: f"{text}*")), unique=True, min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("queue", "name"),
    [("t-vip", "t-vip"), ("t-big-1", "t-big-*"), ("t-1", "t-*"), ("t-", "t-*"), ("t", None), ("other", None)],
)
def test_an_exact_name_wins_and_then_the_longest_pattern(queue: str, name: str | None) -> None:
    assert served_as(queue, ["t-*", "t-big-*", "t-vip"]) == name


@given(_TIERS, _NAMES, st.data())
def test_a_queue_belongs_to_one_pool_however_the_names_are_divided(
    names: list[str], queue: str, data: st.DataObject
) -> None:
    """A pool knows the names of its own queues, and those names of other pools' queues that match its patterns."""
    cut = data.draw(st.integers(0, len(names)))
    domains = [domain_of([QueueShare(name) for name in part], names) for part in (names[:cut], names[cut:])]
    serving = [domain for domain in domains if _serves(domain, queue)]
    expected = served_as(queue, names)
    assert [expected in [share.name for share in domain.queues] for domain in serving] == ([True] if expected else [])


def _serves(domain: Domain, queue: str) -> bool:
    names = [share.name for share in domain.queues]
    found = served_as(queue, [*names, *domain.excluded])
    return found in names


def test_the_settings_for_scripts_list_served_and_excluded_queues() -> None:
    domain = domain_of([QueueShare("t-*", weight=2), QueueShare("default")], ["t-*", "default", "t-vip", "other"])
    assert domain.excluded == ("t-vip",)
    assert settings_of_domain(domain) == " t-*=360360 0 0 1 default=720720 0 0 1 t-vip=-"
    assert settings_of_domain(domain_of([QueueShare("default")])) == ""


def test_pools_with_the_same_pattern_differ_if_they_exclude_other_queues() -> None:
    share = QueueShare("t-*")
    assert domain_of([share]).name == domain_of([share], ["t-*", "other"]).name
    assert domain_of([share]).name != domain_of([share], ["t-*", "t-vip"]).name


def test_a_pattern_does_not_match_itself() -> None:
    assert is_pattern("t-*")
    assert not fits("t-*", "t-*")
