"""The measurements that determine how many workers a pool should have."""

from typing import NamedTuple


class QueueBacklog(NamedTuple):
    """The backlog of one queue of a pool. The numbers cover the whole fleet."""

    queue: str
    ready: int  # the number of ready tasks
    oldest_seconds: float  # the time since the oldest ready task became ready
    running: int  # the number of the queue's tasks that run or are prefetched
    is_open: bool  # whether tasks can be claimed: the queue is not paused, and its condition holds
    cap: int  # the most tasks of the queue that may run at once, or 0 for no cap
    rate_per_second: float  # the most tasks that may start per second, or infinity if the queue has no rate
    objective_seconds: float
    target: float  # the share of starts that must meet the objective


class LoadWindow(NamedTuple):
    """The work of a pool on one node in a period that has just ended."""

    seconds: float  # the length of the period, or 0 before anything was measured
    starts: int
    occupied_seconds: float  # the time for which tasks occupied task slots, summed over all slots
    variation: float  # the squared coefficient of variation of the run times
    first_attempts: int  # the number of first attempts that ended
    first_failures: int  # the number of first attempts that failed or crashed


class NodeLoad(NamedTuple):
    """The report of one node about a pool, which the leader of the pool reads."""

    node: str
    short: LoadWindow  # the work of roughly the last 2 s
    long: LoadWindow  # the work of roughly the last minute
    workers: int  # the number of workers that can claim tasks
    starting: int  # the number of workers that are starting
    free_slots: int  # the number of tasks that the node's workers could start now
    running_seconds: float  # how long the running tasks have been running in total, without held tasks
    running: int  # the number of running tasks, without held tasks
    held: int  # the number of tasks that have been running for longer than the long window
    concurrency: int  # how many tasks a worker runs at once
    least: int  # the smallest number of workers that the node's configuration permits
    most: int  # the largest number of workers that the configuration, memory and CPU permit
    granted: int  # how many workers the node's budget permits, or `most` without a budget
    limited_by: str  # why `most` is smaller than configured: "memory", "cpu" or ""
    start_seconds: float  # how long a worker takes to start
    is_blocked: bool  # whether the event loop of any worker is blocked
    operator: int | None  # the number of workers that an operator has set, or None for automatic scaling


class PoolInputs(NamedTuple):
    """The inputs of a scaling decision."""

    pool: str
    nodes: tuple[NodeLoad, ...]
    queues: tuple[QueueBacklog, ...]
