"""When a worker has done enough and leaves for a fresh one. Pure."""

import math


def life_length(max_tasks: int, jitter: float, random: float) -> int:
    """How many attempts a worker makes before it leaves, 0 for no limit.

    `random` in [0, 1): workers that started together must not all leave together, so up to the share
    `jitter` is taken off.
    """
    if max_tasks == 0:
        return 0
    return max(1, math.ceil(max_tasks * (1 - jitter * random)))
