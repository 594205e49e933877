"""The measurements that the number of workers of a pool is decided by."""

from typing import NamedTuple


class QueueBacklog(NamedTuple):
    """A queue of a pool that has ready tasks, over the whole fleet."""

    queue: str
    ready: int  # number of ready tasks
    oldest_seconds: float  # since the oldest of them became ready
    running: int  # number of its tasks that run or are prefetched
    is_open: bool  # whether tasks may be claimed: it is not paused, and its condition holds
    cap: int  # the most of its tasks that run at once; 0 for no cap
    rate_per_second: float  # the most of its tasks that start per second; infinite without a rate
    objective_seconds: float
    target: float  # the share of starts that must meet the objective


class LoadWindow(NamedTuple):
    """The work of a pool on one node in a period that has just ended."""

    seconds: float  # length of the period; 0 before anything is measured
    starts: int
    occupied_seconds: float  # total time in which task slots were not waiting for work
    variation: float  # squared coefficient of variation of the run times
    first_attempts: int  # first attempts that ended
    first_failures: int  # those of them that failed or crashed


class NodeLoad(NamedTuple):
    """The report of one node about a pool."""

    node: str
    short: LoadWindow  # about the last 2 s
    long: LoadWindow  # about the last minute
    workers: int  # number of workers that serve
    starting: int  # number of workers that are starting
    free_slots: int  # number of tasks that these workers could start now
    running_seconds: float  # total age of the running tasks, without the held ones
    running: int  # number of running tasks, without the held ones
    held: int  # number of tasks that have been running for longer than the long window
    concurrency: int  # number of task slots of a worker
    least: int  # the number of workers that the node's configuration permits at least
    most: int  # the number that configuration, memory and CPU permit at most
    granted: int  # the part of `most` that the node's budget leaves to the pool; `most` without a budget
    limited_by: str  # what made `most` smaller than configured: "memory", "cpu" or ""
    start_seconds: float  # how long the start of a worker takes
    is_blocked: bool  # whether an event loop of a worker is blocked
    operator: int | None  # the number that an operator gave; None for automatic


class PoolInputs(NamedTuple):
    """Everything that a decision is based on."""

    pool: str
    nodes: tuple[NodeLoad, ...]
    queues: tuple[QueueBacklog, ...]
