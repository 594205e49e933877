"""The examination of `rota doctor`: facts about the configuration, the machine, the server and the fleet, and the
resulting findings.

The modules `*_reader` read the facts into the records of `readings` and decide nothing. The modules `*_rules` are pure
functions of these records. `finding_kinds` has the only table of findings.
"""
