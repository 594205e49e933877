"""The example that `rota demo` runs: a fleet and its producer, a killed worker, two resizes, and the proof at the end.

`mail_tasks` are what the fleet runs, `scenario` is what happens, and `proof` compares what the producer was promised
with what the tasks noted. Redis has no part in that comparison.
"""
