"""`rota demo`: a real fleet, run as a user runs one, with a producer, a kill and two resizes, and then the proof.

The fleet is `rota run --embedded` in a process of its own; the demo touches it only as anybody can: it enqueues
through `rota.Client`, reads `/metrics`, edits `rota.toml` and sends signals. Whether every task ran is judged by
two journals that Redis has no part in: what the producer was promised, and what the tasks themselves wrote down.
"""
