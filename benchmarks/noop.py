"""The task of the benchmark: nothing, so that what is measured is the queue."""

import rota


@rota.task(queue="bench")
def nothing(number: int) -> None:
    """Do nothing."""
