"""The only task of the service. Instead of making a report, it appends a line to reports.txt."""

import os
import time

import rota


@rota.task(time_limit=30)
def make_report(number: int) -> None:
    """Make one report for the tenant whose queue this task came from."""
    time.sleep(0.005)
    task = rota.current_task()
    line = f"{task.queue} report {number}, {task.lag_seconds:.3f} s after it was requested\n"
    file = os.open("reports.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line.encode())  # a single write, because several workers may write at the same time
    finally:
        os.close(file)
