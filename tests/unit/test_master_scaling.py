"""The number of workers that an operator sets for a pool: how long this number stays in force, what replaces it, and
which requests are refused.
"""

import pytest

from rota_supervisor.config.model import Config, PoolConfig
from rota_supervisor.config.resolution import WorkerRange
from rota_supervisor.control.port import RequestRefused, ScaleOrder
from rota_supervisor.master.core.generations import Rollout
from rota_supervisor.master.core.targets import Scaling, ordered, origin_of_count

COUNTS = {"mail": 4, "web": 1}


def fixed(**numbers: int) -> dict[str, WorkerRange]:
    return {pool: WorkerRange(number, number) for pool, number in numbers.items()}


FOUR = fixed(**COUNTS)
FIVE = fixed(mail=5, web=1)


def test_an_operators_count_overrides_only_that_of_its_pool() -> None:
    scaled = Scaling().with_count("mail", 6, [FOUR])
    assert scaled.counts(FOUR) == {"mail": 6, "web": 1}
    assert scaled.holds("mail", FOUR["mail"])
    assert not scaled.holds("web", FOUR["web"])


def test_an_operator_can_scale_a_pool_to_zero() -> None:
    assert Scaling().with_count("mail", 0, [FOUR]).counts(FOUR) == {"mail": 0, "web": 1}


def test_an_operators_count_survives_reloads_of_other_pools() -> None:
    more_of_the_other = fixed(mail=4, web=9)
    scaled = Scaling().with_count("mail", 6, [FOUR]).after([FOUR, more_of_the_other]).after([more_of_the_other])
    assert scaled.counts(more_of_the_other) == {"mail": 6, "web": 9}


def test_an_operators_count_overridden_by_the_file_is_not_restored() -> None:
    scaled = Scaling().with_count("mail", 6, [FOUR]).after([FOUR, FIVE])
    assert scaled.counts(FIVE)["mail"] == 5
    assert scaled.after([FIVE]).after([FOUR]).counts(FOUR)["mail"] == 4


def test_an_overridden_operators_count_is_not_restored_by_overlapping_reloads() -> None:
    scaled = Scaling().with_count("mail", 6, [FOUR]).after([FOUR, FIVE]).after([FIVE, FOUR])
    assert scaled.counts(FOUR)["mail"] == 4


def test_a_failed_reload_restores_the_operators_count() -> None:
    scaled = Scaling().with_count("mail", 6, [FOUR]).after([FOUR, FIVE])
    assert scaled.after([FOUR]).counts(FOUR)["mail"] == 6


def test_a_count_set_during_a_reload_holds_whether_or_not_it_succeeds() -> None:
    scaled = Scaling().with_count("mail", 6, [FOUR, FIVE])
    assert scaled.counts(FOUR)["mail"] == scaled.counts(FIVE)["mail"] == 6
    assert scaled.after([FIVE]).counts(FIVE)["mail"] == 6
    # The reload that sets 5 was requested after the operator had set 6.
    assert scaled.after([FOUR]).after([FOUR, FIVE]).counts(FIVE)["mail"] == 5


def test_a_pool_removed_and_added_again_has_its_configured_count() -> None:
    without = fixed(web=1)
    assert Scaling().with_count("mail", 6, [FOUR]).after([without]).after([FOUR]).counts(FOUR) == COUNTS


def test_the_limit_on_workers_includes_configured_and_operator_counts() -> None:
    scaled = Scaling().with_count("mail", 400, [FOUR])
    assert scaled.faults(fixed(mail=4, web=100)) == []
    [fault] = scaled.faults(fixed(mail=4, web=101))
    assert str(fault).endswith("got 501 with the numbers set by hand (mail 400): scale these pools down first")
    # The file now has another number for `mail`, which replaces the operator's number.
    assert scaled.faults(fixed(mail=5, web=101)) == []


# Ranges

RANGE = {"mail": WorkerRange(2, 16), "web": WorkerRange(1, 1)}


def test_a_pool_with_a_range_starts_at_its_minimum_and_scales_automatically() -> None:
    assert Scaling().counts(RANGE) == {"mail": 2, "web": 1}
    assert Scaling().with_automatic({"mail": 7, "web": 5}).counts(RANGE) == {"mail": 7, "web": 1}
    assert Scaling().with_automatic({"mail": 20}).counts(RANGE)["mail"] == 16


def test_an_operators_count_overrides_automatic_scaling_until_withdrawn() -> None:
    scaled = Scaling().with_automatic({"mail": 7}).with_count("mail", 20, [RANGE])
    assert scaled.counts(RANGE)["mail"] == 20
    assert scaled.with_automatic({"mail": 3}).counts(RANGE)["mail"] == 20
    # Scaling within the range starts from 20, limited to the maximum of the range.
    assert scaled.without_count("mail").counts(RANGE)["mail"] == 16
    assert Scaling().with_count("mail", 6, [FOUR]).without_count("mail").counts(FOUR)["mail"] == 4


def test_the_limit_on_workers_includes_the_maximum_of_each_range() -> None:
    ranges = {"mail": WorkerRange(2, 400), "web": WorkerRange(1, 100)}
    assert Scaling().faults(ranges) == []
    assert Scaling().with_count("web", 101, [ranges]).faults(ranges) != []


# Requests


def test_a_scale_order_may_omit_the_pool_if_there_is_only_one() -> None:
    assert ordered(ScaleOrder(None, 3), {"mail": 4}) == ("mail", 3)
    assert ordered(ScaleOrder("web", 3), COUNTS) == ("web", 3)


@pytest.mark.parametrize(
    ("pool", "error"),
    [
        (None, "there is more than one pool; name one of them: mail, web"),
        ("mial", 'there is no pool "mial", did you mean "mail"?'),
        ("zzz", 'there is no pool "zzz"; the pools are mail, web'),
        ("", 'there is no pool ""; the pools are mail, web'),
    ],
)
def test_a_scale_order_for_an_unknown_or_ambiguous_pool_is_refused(pool: str | None, error: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        ordered(ScaleOrder(pool, 3), COUNTS)
    assert str(caught.value) == error


@pytest.mark.parametrize(
    ("order", "count"),
    [
        (ScaleOrder("mail", 0), 0),
        (ScaleOrder("mail", -4, is_relative=True), 0),
        (ScaleOrder("mail", 2, is_relative=True), 6),
        (ScaleOrder("mail", 499), 499),
        (ScaleOrder("mail", None), None),
    ],
)
def test_a_scale_order_is_absolute_relative_or_automatic(order: ScaleOrder, count: int | None) -> None:
    assert ordered(order, COUNTS) == ("mail", count)


@pytest.mark.parametrize(
    ("order", "error"),
    [
        (ScaleOrder("mail", -1), "cannot have -1 workers: it has 4, and the minimum is 0"),
        (ScaleOrder("mail", -5, is_relative=True), "cannot have -1 workers: it has 4, and the minimum is 0"),
        (ScaleOrder("mail", 500), "a node has at most 500, and the other pools have 1: request at most 499"),
        (ScaleOrder("mail", 10**30), "request at most 499, or start a master on another node"),
    ],
)
def test_a_scale_order_outside_the_limits_is_refused(order: ScaleOrder, error: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        ordered(order, COUNTS)
    assert error in str(caught.value)


# The origin of a pool's number of workers


@pytest.mark.parametrize(
    ("said", "origin"),
    [
        ("file /etc/rota.toml", "file"),
        ("environment ROTA_WORKERS", "environment"),
        ("command line", "flag"),
        (None, "default"),
    ],
)
def test_the_origin_of_a_worker_count_is_known(said: str | None, origin: str) -> None:
    found = Rollout.first(Config(workers=4), {"workers": said} if said else {}).in_force
    assert origin_of_count("default", found, Scaling()) == origin
    assert origin_of_count("default", found, Scaling().with_count("default", 6, [fixed(default=4)])) == "operator"


def test_the_origin_of_each_pools_worker_count_is_known() -> None:
    pools = {"mail": PoolConfig(workers=4), "web": PoolConfig(workers=1)}
    origins = {"pools.mail.workers": "file f", "pools.web.workers": "environment E"}
    found = Rollout.first(Config(pools=pools), origins).in_force
    scaled = Scaling().with_count("web", 1, [FOUR])  # the operator's number is the same as in the file
    assert [origin_of_count(pool, found, Scaling()) for pool in pools] == ["file", "environment"]
    assert [origin_of_count(pool, found, scaled) for pool in pools] == ["file", "operator"]
