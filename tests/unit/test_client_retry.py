"""The outcome of a failed attempt: the task is retried after a delay, or becomes dead."""

import subprocess
import sys
from datetime import timedelta

import pytest

from rota.errors import Dead, Retry, TimeLimit
from rota.protocol.outcome import RetryOutcome
from rota.tasks.options import TaskOptions, check_options
from rota.tasks.retry_rules import DeadReason, GiveUp, decide

BOOM = RuntimeError("boom")


def delay_seconds(options: TaskOptions, failures: int, exception: BaseException = BOOM, random: float = 0.5) -> float:
    outcome = decide(options, failures, exception, lambda: random)
    assert isinstance(outcome, RetryOutcome)
    return outcome.delay_us / 1_000_000


def end(options: TaskOptions, failures: int, exception: BaseException) -> GiveUp:
    outcome = decide(options, failures, exception, lambda: 0.5)
    assert isinstance(outcome, GiveUp)
    return outcome


def test_linear_backoff_adds_two_seconds_per_failure() -> None:
    options = check_options({"backoff": "linear", "base": 2, "jitter": False})
    assert [delay_seconds(options, failures) for failures in range(1, 11)] == [2.0 * n for n in range(1, 11)]


def test_exponential_backoff_doubles_up_to_the_longest_delay() -> None:
    options = TaskOptions(jitter=False, retries=100)
    delays = [delay_seconds(options, failures) for failures in (1, 2, 3, 10, 11, 12, 90)]
    assert delays == [2, 4, 8, 1024, 2048, 3600, 3600]


def test_jitter_spreads_a_retry_delay_from_zero_to_its_whole_length() -> None:
    options = TaskOptions()
    assert delay_seconds(options, 3, random=0.0) == 0
    assert delay_seconds(options, 3, random=0.25) == 2
    assert delay_seconds(options, 3, random=0.999) == pytest.approx(7.992)


def test_a_backoff_function_gets_the_failure_count_and_max_delay_limits_it() -> None:
    options = check_options({"backoff": lambda failures: timedelta(minutes=failures), "max_delay": 150})
    assert [delay_seconds(options, failures) for failures in (1, 2, 3)] == [60, 120, 150]


def test_a_task_whose_backoff_function_raises_is_dead_with_both_errors() -> None:
    def broken(failures: int) -> float:
        raise KeyError(failures)

    gave_up = end(TaskOptions(backoff=broken), 1, BOOM)
    assert gave_up.reason is DeadReason.BACKOFF
    assert "KeyError: 1" in gave_up.why
    assert "RuntimeError: boom" in gave_up.why


def test_a_backoff_function_that_calls_exit_ends_only_its_task() -> None:
    def leaving(_: int) -> float:
        sys.exit("no more")

    assert end(TaskOptions(backoff=leaving), 1, BOOM).why.startswith(
        "the task's backoff returned no valid delay: SystemExit"
    )


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_exception_without_a_message_is_shown_by_its_class_name() -> None:
    assert "Mute" in end(TaskOptions(retries=0), 1, Mute()).why
    assert "Mute" in end(TaskOptions(dead_on=(Mute,)), 1, Mute()).why
    assert "Mute" in end(TaskOptions(retry_on=(KeyError,)), 1, Mute()).why
    assert "Mute" in end(TaskOptions(backoff=lambda _: -float("inf")), 1, Mute()).why


def test_ten_retries_are_eleven_attempts() -> None:
    options = TaskOptions()
    assert isinstance(decide(options, 10, BOOM, lambda: 0.5), RetryOutcome)
    assert end(options, 11, BOOM) == GiveUp(DeadReason.RETRIES, "attempt 11 of 11: RuntimeError: boom")


def test_no_retries_is_one_attempt() -> None:
    assert end(TaskOptions(retries=0), 1, BOOM).reason is DeadReason.RETRIES


def test_dead_on_ends_the_task_at_once_and_overrides_retry_on() -> None:
    options = check_options({"retry_on": Exception, "dead_on": (KeyError, ValueError)})
    assert end(options, 1, ValueError("no")) == GiveUp(DeadReason.DEAD_ON, "ValueError: no")


def test_only_exceptions_in_retry_on_are_retried() -> None:
    options = check_options({"retry_on": ConnectionError})
    assert delay_seconds(options, 1, ConnectionResetError()) == 1
    assert end(options, 1, BOOM).reason is DeadReason.NOT_RETRIED
    assert end(options, 1, TimeLimit()).reason is DeadReason.NOT_RETRIED


@pytest.mark.parametrize("exception", [TimeLimit(), SystemExit(3), KeyboardInterrupt()])
def test_system_exit_and_soft_time_limits_are_retried_like_other_failures(exception: BaseException) -> None:
    assert delay_seconds(TaskOptions(), 1, exception) == 1


def test_a_task_can_choose_the_delay_of_its_retry() -> None:
    assert delay_seconds(TaskOptions(), 1, Retry(delay=90)) == 90
    assert delay_seconds(TaskOptions(), 1, Retry(timedelta(hours=2))) == 7200
    assert delay_seconds(TaskOptions(jitter=False), 3, Retry()) == 8
    assert delay_seconds(check_options({"retry_on": KeyError}), 1, Retry(5)) == 5


def test_a_retry_requested_by_the_task_counts_against_its_retry_limit() -> None:
    assert end(TaskOptions(retries=2), 3, Retry(1)).reason is DeadReason.RETRIES


def test_a_task_can_end_itself_as_dead() -> None:
    assert end(TaskOptions(), 1, Dead("address unknown")) == GiveUp(DeadReason.REQUESTED, "address unknown")
    assert end(TaskOptions(), 1, Dead()).why == "the task raised rota.Dead"
    assert end(TaskOptions(), 1, Dead(KeyError("image"))).why == "Dead: 'image'"  # type: ignore[arg-type]  # it happens


def test_subclasses_of_dead_and_retry_need_not_call_init() -> None:
    class NoImage(Dead):
        def __init__(self, image: int) -> None:
            self.image = image

    class Busy(Retry):
        def __init__(self, host: str) -> None:
            self.host = host

    assert end(TaskOptions(), 1, NoImage(7)) == GiveUp(DeadReason.REQUESTED, "the task raised rota.Dead")
    assert delay_seconds(TaskOptions(jitter=False), 1, Busy("db")) == 2
    negative = Busy("db")
    negative.delay = -1
    why = (
        "Retry was raised without a valid delay: ValueError: the delay of rota.Retry must be 0 seconds or more, got -1"
    )
    assert end(TaskOptions(), 1, negative).why.startswith(why)


DEBUGGED = """
import pdb
from bdb import BdbQuit
from rota.tasks.options import TaskOptions
from rota.tasks.retry_rules import decide

try:
    pdb.Pdb(nosigint=True).set_trace()
    print("the debugger went on")
except BdbQuit as error:
    gave_up = decide(TaskOptions(retries=7), 1, error, lambda: 0.5)
    print(gave_up.reason.value, gave_up.why)
"""


def test_a_breakpoint_without_a_terminal_ends_the_task_with_advice() -> None:
    done = subprocess.run(  # in another process, because a debugger in this one would end the coverage trace
        [sys.executable, "-c", DEBUGGED], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    said = done.stdout.splitlines()[-1]
    assert said.startswith(DeadReason.NOT_RETRIED.value)
    assert "workers have no terminal" in said
    assert "rota.testing.eager()" in said
