"""The example that `rota demo` runs: a fleet and its producer, a killed worker, two resizes, and a proof at the end.

The fleet runs the tasks in `mail_tasks`. `scenario` contains the steps of the demo. `proof` compares the tasks that
were accepted from the producer with the tasks that ran. This comparison does not use Redis.
"""
