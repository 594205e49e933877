"""PromQL that more than one panel is made of.

Gauges of queues are read from Redis, so every master shows the same one: `max by (job, fleet, queue)`. What a
master counted itself is summed.
"""

from typing import Final

FLEET: Final = 'job=~"$job", fleet=~"$fleet"'
QUEUE: Final = f'{FLEET}, queue=~"$queue"'
TASK: Final = f'{QUEUE}, task=~"$task"'
WINDOW: Final = "$__rate_interval"
STEP: Final = "$__interval"

BY_FLEET: Final = "job, fleet"
BY_NODE: Final = "job, fleet, instance"
BY_POOL: Final = "job, fleet, pool"
BY_QUEUE: Final = "job, fleet, queue"
BY_TASK: Final = "job, fleet, queue, task"

# A task that its own rate holds back is late as it was told: no objective counts it.
COUNTS_FOR_OBJECTIVE: Final = f'{QUEUE}, kind!="throttled"'

# A reload, and a worker recycled or cancelled as it was told, are no news.
UNWANTED_RESTARTS: Final = f'rota_process_restarts_total{{{FLEET}, reason!~"reload|max_tasks|max_rss|cancelled"}}'


def called(text: str) -> str:
    """A legend that also says of which job and fleet: two of them may have a queue of the same name."""
    return text + " · {{job}}/{{fleet}}"


def quantile(percent: int, histogram: str, *by: str, selector: str = QUEUE) -> str:
    """The quantile of a histogram; what has no observations is left out rather than NaN."""
    labels = ", ".join([*by, "le"])
    buckets = f"sum by ({labels}) (rate({histogram}_bucket{{{selector}}}[{WINDOW}]))"
    return f"histogram_quantile({percent / 100}, {buckets}) >= 0"


def rate(counter: str, selector: str = QUEUE, by: str = "") -> str:
    """How much a counter grows in a second, summed over all that is selected, or by those labels."""
    return f"sum{f' by ({by})' if by else ''} (rate({counter}{{{selector}}}[{WINDOW}]))"


def growth(counter: str, selector: str, by: str) -> str:
    """How much a counter grew since the point before, by those labels: no point counts what another one has counted.

    `increase` would not do: its windows overlap or leave gaps, and it extrapolates. A series that was not there at the
    point before counts from 0 if its master was, and not at all if Prometheus had not met the master yet.
    """
    now = f"{counter}{{{selector}}}"
    was_scraped = f"(0 * {now} and on (job, instance) rota_build_info{{{FLEET}}} offset {STEP})"
    return f"sum by ({by}) (clamp_min({now} - ({now} offset {STEP} or {was_scraped}), 0))"


def events(counter: str, selector: str, by: str) -> str:
    """The same for bars, each of which is something that happened."""
    return f"{growth(counter, selector, by)} > 0"


def queue_gauge(gauge: str) -> str:
    """A gauge of each selected queue."""
    return f"max by ({BY_QUEUE}) ({gauge}{{{QUEUE}}})"


def fleet_gauge(gauge: str, by: str = BY_NODE) -> str:
    """A gauge that each master has of its own."""
    return f"max by ({by}) ({gauge}{{{FLEET}}})"


def while_open(gauge: str) -> str:
    """A gauge of the queues from which somebody may claim: what waits in others waits as it was told."""
    return f"({queue_gauge(gauge)} unless on ({BY_QUEUE}) {queue_gauge('rota_queue_closed_age_seconds')} > 0)"


def counted_by_name(gauge: str) -> str:
    """A gauge without the queues that stand for a pattern, whose counters have the name of the pattern."""
    return f"({gauge} unless on ({BY_QUEUE}) {queue_gauge('rota_queue_pattern')})"


def lateness() -> str:
    """How late each queue is, in every way there is; the label `what` says which.

    Lag alone is counted when a task starts, and is silent of what never does.
    """
    ways = {
        "started late": queue_gauge("rota_task_lag_worst_seconds"),
        "waits to start": while_open("rota_queue_oldest_ready_age_seconds"),
        "not promoted": queue_gauge("rota_queue_oldest_overdue_age_seconds"),
    }
    return " or ".join(f'label_replace({expr}, "what", "{what}", "", "")' for what, expr in ways.items())


def stuck() -> str:
    """For how long tasks have waited in each queue of which nothing was claimed lately, although it is open."""
    waiting = counted_by_name(while_open("rota_queue_oldest_ready_age_seconds"))
    return f"{waiting} > 1 unless on ({BY_QUEUE}) {rate('rota_claims_total', by=BY_QUEUE)} > 0"


def burn(window: str) -> str:
    """How many times faster than the objective allows each queue spends its error budget."""
    misses = f"sum by ({BY_QUEUE}) (rate(rota_task_lag_objective_misses_total{{{COUNTS_FOR_OBJECTIVE}}}[{window}]))"
    starts = f"sum by ({BY_QUEUE}) (rate(rota_task_starts_total{{{COUNTS_FOR_OBJECTIVE}}}[{window}]))"
    return f"clamp_max({misses} / ({starts} > 0), 1) / (1 - {queue_gauge('rota_queue_lag_target_ratio')})"


def seconds_to_drain() -> str:
    """What is ready in each open queue, over the starts of now; a day at most, and where nothing starts."""
    ready = counted_by_name(while_open("rota_queue_ready_tasks"))
    starts = rate("rota_task_starts_total", by=BY_QUEUE)
    return f"clamp_max(({ready} > 0) / on ({BY_QUEUE}) ({starts} or {ready} * 0), 86400)"


def share_of_claims() -> str:
    """The share of each queue in the claims of all that are selected."""
    claims = rate("rota_claims_total", by=BY_QUEUE)
    return f"{claims} / on ({BY_FLEET}) group_left () ({rate('rota_claims_total', by=BY_FLEET)} > 0)"


def failing() -> str:
    """The share of failures among the attempts of each task that ended by themselves."""
    failures, all_of_them = (
        rate("rota_tasks_processed_total", f'{TASK}, outcome=~"{outcomes}"', BY_TASK)
        for outcomes in ("retry|dead", "done|retry|dead")
    )
    return f"{failures} / ({all_of_them} > 0)"


def masters(expr: str) -> str:
    """An expression by job and instance, of the masters that were scraped in the time shown, with their fleet."""
    known = f"max by (job, fleet, instance) (last_over_time(rota_build_info{{{FLEET}}}[$__range]))"
    return f"{expr} * on (job, instance) group_left (fleet) {known}"


def since_a_round() -> str:
    """For how long no poller of each fleet has made a round."""
    last = fleet_gauge("rota_poller_last_success_timestamp_seconds", BY_FLEET)
    return f"clamp_min(time() - {last}, 0)"
