"""A program that takes tasks of its own: `python consumer_program.py URL NAMESPACE QUEUE LEASE_SECONDS`.

It writes a line for each task that it holds, `held ID`, and settles the task when it is sent a line: `done ID`, or
`lost ID` when that was refused.
"""

import sys

import rota


def say(what: str, task: rota.LeasedTask) -> None:
    """Write a line."""
    sys.stdout.write(f"{what} {task.id}\n")
    sys.stdout.flush()


def main(url: str, namespace: str, queue: str, lease_seconds: str) -> None:
    """Take tasks until standard input ends."""
    client = rota.Client(url, namespace, timeout_seconds=1)
    with client.consumer(queue, lease_seconds=float(lease_seconds)) as consumer:
        for task in consumer:
            say("held", task)
            if not sys.stdin.readline():
                return
            try:
                task.done()
            except rota.LeaseLost:
                say("lost", task)
            else:
                say("done", task)


main(*sys.argv[1:])
