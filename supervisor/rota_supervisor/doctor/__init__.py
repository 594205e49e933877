"""The examination of `rota doctor`: facts about the configuration, the machine, the server and the fleet, and the
resulting findings.

The `*_reader` modules only collect facts, as records of the types in `readings`. The `*_rules` modules contain pure
functions that derive findings from these records. `finding_kinds` has the table of all findings.
"""
