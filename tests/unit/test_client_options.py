"""The options of tasks: their checks, defaults and overrides, and durations."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from rota.child.child_settings import TaskOverride
from rota.durations import microseconds, seconds, unix_microseconds, utc_datetime
from rota.errors import InvalidName
from rota.tasks.options import TaskOptions, check_options, effective_options


def test_the_default_task_options_are_the_documented_ones() -> None:
    options = check_options({})
    assert options == TaskOptions()
    assert (options.queue, options.retries, options.backoff, options.base) == ("default", 10, "exponential", 2)
    assert (options.max_delay, options.jitter, options.time_limit) == (3600, True, None)
    assert (options.retry_on, options.dead_on) == ((Exception,), ())
    assert options.soft_time_limit is options.expires is options.unique_for is None
    assert options.unique is False
    assert (options.result_ttl, options.remember) == (0, True)


def test_an_unknown_task_option_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        TypeError,
        match=r"no option 'result_tll', did you mean 'result_ttl'. its options are name, queue, .*result_ttl, remember",
    ):
        check_options({"result_tll": 60})  # type: ignore[typeddict-unknown-key]


def test_every_duration_option_accepts_seconds_or_a_timedelta() -> None:
    options = check_options(
        {
            "base": timedelta(milliseconds=500),
            "max_delay": timedelta(minutes=1),
            "time_limit": 30,
            "soft_time_limit": timedelta(seconds=20),
            "expires": timedelta(hours=1),
            "unique": True,
            "unique_for": 1.5,
            "result_ttl": timedelta(minutes=2),
        }
    )
    assert (options.base, options.max_delay, options.time_limit, options.soft_time_limit) == (0.5, 60, 30, 20)
    assert (options.expires, options.unique_for, options.result_ttl) == (3600, 1.5, 120)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"retries": -1}, ValueError, "retries must be 0 or more, got -1"),
        ({"retries": 1.5}, TypeError, "retries must be a whole number, got 1.5"),
        ({"retries": True}, TypeError, "retries must be a whole number"),
        ({"queue": "two words"}, InvalidName, "queue name 'two words' is not valid"),
        ({"queue": "mail-delayed"}, InvalidName, "may not end in '-delayed'"),
        ({"queue": 7}, InvalidName, "queue must be a string"),
        ({"backoff": "fibonacci"}, ValueError, "backoff must be"),
        ({"base": -1}, ValueError, "base must be 0 seconds or more"),
        ({"max_delay": "1h"}, TypeError, "max_delay must be seconds or a timedelta, got '1h'"),
        ({"jitter": 1}, TypeError, "jitter must be True or False"),
        ({"retry_on": ValueError()}, TypeError, "retry_on must be an exception class or a tuple of them"),
        ({"dead_on": (ValueError, int)}, TypeError, "dead_on must be an exception class or a tuple of them"),
        ({"time_limit": 0}, ValueError, "time_limit must be more than 0 seconds"),
        ({"time_limit": float("inf")}, ValueError, "time_limit must be at most 100 years"),
        ({"time_limit": 10**400}, ValueError, "time_limit must be at most 100 years"),
        ({"time_limit": -(10**400)}, ValueError, "time_limit must be at most 100 years"),
        ({"soft_time_limit": 60, "time_limit": 60}, ValueError, "soft_time_limit (60 s) must be shorter than"),
        ({"unique": "key"}, TypeError, "unique must be True, False or a callable"),
        ({"unique_for": 5}, ValueError, "unique_for has no effect without unique=True"),
        ({"result_ttl": None}, TypeError, "result_ttl must be seconds or a timedelta, got None"),
        ({"result_ttl": -1}, ValueError, "result_ttl must be 0 seconds or more"),
        ({"remember": 0}, TypeError, "remember must be True or False"),
    ],
)
def test_an_error_names_the_invalid_option_and_its_valid_values(
    given: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        check_options(given)
    assert message in str(caught.value)


def test_task_options_of_a_call_override_the_operators_and_the_declared_ones() -> None:
    declared = check_options({"retries": 5, "time_limit": 30, "expires": 60, "result_ttl": 60})
    override = TaskOverride(retries=3, time_limit_seconds=60.0, max_delay_seconds=10.0)
    assert effective_options(declared, None, {}) is declared
    options = effective_options(declared, override, {})
    assert (options.retries, options.time_limit, options.max_delay, options.expires) == (3, 60, 10, 60)
    options = effective_options(declared, override, {"retries": 1, "expires": 5, "result_ttl": 0})
    assert (options.retries, options.time_limit, options.expires, options.result_ttl) == (1, 60, 5, 0)


def test_a_task_may_have_any_time_limit_or_none() -> None:
    assert check_options({"time_limit": None}).time_limit is None
    assert check_options({"time_limit": 3600}).time_limit == 3600
    # This soft limit is accepted, because the hard limit in the fleet's configuration may be even longer.
    assert check_options({"soft_time_limit": 5000}).soft_time_limit == 5000


@pytest.mark.parametrize(
    "enqueued",
    [
        {"retries": "many", "expires": -3},
        {"retries": -(10**4000), "expires": 10**400},
        {"retries": 1e9, "expires": 1e308, "result_ttl": -1},
        {"retries": None, "expires": True},
        {"retries": [[]], "expires": {"a": "\ud800"}},
    ],
)
def test_invalid_options_of_another_producer_are_ignored(enqueued: dict[str, Any]) -> None:
    assert effective_options(TaskOptions(), None, enqueued) == TaskOptions()


def test_booleans_and_endless_durations_are_refused() -> None:
    assert seconds(timedelta(days=1), "delay") == 86_400
    assert microseconds(0.000_001, "delay") == 1
    with pytest.raises(TypeError, match="delay must be seconds or a timedelta, got True"):
        seconds(True, "delay")
    for endless in (float("nan"), float("-inf"), 10**400, -(10**9000)):
        with pytest.raises(ValueError, match="delay must be at most 100 years"):
            seconds(endless, "delay")


def test_due_times_are_exact_to_the_microsecond() -> None:
    when = datetime(2024, 2, 29, 12, 0, 0, 123_457, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    assert unix_microseconds(when, "at") == 1_709_188_200_123_457
    assert utc_datetime(1_709_188_200_123_457) == when
    with pytest.raises(ValueError, match="has no time zone"):
        unix_microseconds(datetime(2024, 1, 1), "at")  # noqa: DTZ001 - a naive datetime is the point of the test
    with pytest.raises(ValueError, match="100 years"):
        unix_microseconds(datetime(9999, 1, 1, tzinfo=UTC), "at")
