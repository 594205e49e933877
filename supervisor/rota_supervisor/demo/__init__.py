"""The demo that `rota demo` runs. A producer enqueues tasks for a fleet, a worker is killed, a pool is resized twice,
and at the end the demo proves that no task was lost.

The fleet runs the tasks in `mail_tasks`. `scenario` contains the steps of the demo. `proof` compares the tasks that
were accepted from the producer with the tasks that ran. This comparison does not use Redis.
"""
