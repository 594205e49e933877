"""A program with a consumer: `python consumer_program.py URL NAMESPACE QUEUE LEASE_SECONDS`.

It writes a line `held ID` for each task that it claims. When it receives a line, it settles the task and writes `done
ID`, or `lost ID` if the server refused the outcome.
"""

import sys

import rota


def report(what: str, task: rota.LeasedTask) -> None:
    """Write a line about a task."""
    sys.stdout.write(f"{what} {task.id}\n")
    sys.stdout.flush()


def main(url: str, namespace: str, queue: str, lease_seconds: str) -> None:
    """Claim tasks until standard input ends."""
    client = rota.Client(url, namespace, timeout_seconds=1)
    with client.consumer(queue, lease_seconds=float(lease_seconds)) as consumer:
        for task in consumer:
            report("held", task)
            if not sys.stdin.readline():
                return
            try:
                task.done()
            except rota.LeaseLost:
                report("lost", task)
            else:
                report("done", task)


main(*sys.argv[1:])
