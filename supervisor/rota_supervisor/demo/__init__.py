"""The example that `rota demo` runs: a fleet and its producer, a killed worker, two resizes, and the proof at the end.

The fleet runs the tasks in `mail_tasks`. `scenario` is the course of the demo. `proof` compares the tasks that were
accepted from the producer with those that ran. That comparison does not use Redis.
"""
