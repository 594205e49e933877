"""The rates of tasks: how they are written, and which tasks share a rate."""

import inspect
from typing import Any

import pytest

import rota
from rota.child.child_settings import TaskOverride
from rota.client.task import Task
from rota.protocol.entry import parse_entry
from rota.protocol.turns import RateRequest
from rota.tasks.declaration import fault_in_rate_key
from rota.tasks.options import Rate, TaskOptions, check_options, effective_options

ENTRY = parse_entry(b"a q i 1000000 2000000 0 0 0 0 -")


def charge(account: str, shop: int = 1, *more: int, kind: str = "x", **rest: int) -> None: ...


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 10}, 'rate must be a string such as "10/s", got 10'),
        ({"rate": "10"}, 'rate: expected a rate such as "100/m"'),
        ({"rate": "0/s"}, "rate: expected a rate"),
        ({"rate": "1/s", "rate_key": 7}, 'rate_key must be a string such as "{account}", got 7'),
        ({"rate": "1/s", "rate_key": "account"}, 'in braces, as in rate_key="{account}", got'),
        ({"rate": "1/s", "rate_key": "{account"}, "rate_key: .* in '{account'; for a literal brace, write {{"),
        ({"rate": "1/s", "rate_key": "{}"}, "braces must contain the name of a parameter and nothing else, got '{}'"),
        ({"rate": "1/s", "rate_key": "{account.name}"}, "braces must contain the name"),
        ({"rate": "1/s", "rate_key": "{account!r}"}, "braces must contain the name"),
        ({"rate": "1/s", "rate_key": "{account:>8}"}, "braces must contain the name"),
        ({"rate_key": "{account}"}, 'rate_key has no effect without a rate: pass both, as in rate="10/s"'),
    ],
)
def test_the_decorator_refuses_an_invalid_rate(options: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        check_options(options)


def test_the_decorator_refuses_a_rate_key_that_names_no_parameter() -> None:
    declare = rota.task(name="charge", rate="1/s", rate_key="{acount}")
    with pytest.raises(ValueError, match=r"charge: rate_key names 'acount', which is not a .* account, shop, kind"):
        declare(charge)
    assert fault_in_rate_key("{rest}", inspect.signature(charge))
    assert not fault_in_rate_key("{shop}-{kind}", inspect.signature(charge))
    assert not fault_in_rate_key("{any}", None)


def request_for(rate_key: str, *args: Any, expires: float | None = None, **kwargs: Any) -> RateRequest:
    """Return the rate request of a call with these arguments."""
    options = TaskOptions(rate=Rate(100_000, 1), rate_key=rate_key, expires=expires)
    found = Task(charge, "charge", options).rate_request(ENTRY, options, args, kwargs)
    assert found
    return found


def test_a_rate_name_does_not_depend_on_how_arguments_are_passed() -> None:
    names = {
        request_for("{account} {shop}", "a").name,
        request_for("{account} {shop}", "a", 1).name,
        request_for("{account} {shop}", shop=1, account="a", kind="y").name,
    }
    assert len(names) == 1
    assert request_for("{account} {shop}", "a", 2).name not in names
    assert request_for("{account}", "a").name not in names
    assert request_for("", "a").name == request_for("", "b").name


@pytest.mark.parametrize("value", ["", "é\ud800", "x" * 100_000, None, 1.5, [1, {"b": 2}], {"{account}": "}"}])
def test_any_json_value_makes_a_valid_rate_name(value: Any) -> None:
    name = request_for("{account}", value).name
    assert len(name) == 40
    assert name.isalnum()


def test_calls_without_the_rate_key_argument_share_a_rate() -> None:
    assert request_for("{account}").name == request_for("{account}", kind="y").name


def test_a_rate_request_contains_the_rate_and_the_latest_start() -> None:
    assert request_for("{account}", "a")[2:] == (100_000, 1, None)
    assert request_for("{account}", "a", expires=2.5)[2:] == (100_000, 1, 3_500_000)
    plain = check_options({})
    assert Task(charge, "charge", plain).rate_request(ENTRY, plain, ["a"], {}) is None


def test_an_operators_override_changes_or_removes_a_rate() -> None:
    declared = check_options({"rate": "10/s", "rate_key": "{account}"})
    changed = effective_options(declared, TaskOverride(rate="1/m"), {})
    assert (changed.rate, changed.rate_key) == (Rate(60_000_000, 1), "{account}")
    assert effective_options(declared, TaskOverride(rate=""), {}).rate is None
    assert effective_options(declared, TaskOverride(), {}).rate == Rate(100_000, 1)
