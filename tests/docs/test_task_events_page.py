"""The table of task events in docs/protocol.md is what the code has and the arrows that are drawn of a task."""

import re

from rota.protocol.task_events import EventName
from support.event_paths import ENDED, NOTHING, ways
from support.prose import ROOT, blocks

_ARROW = re.compile(r"^\s*(\[\*\]|\w+) --> (\w+)", re.MULTILINE)


def test_the_table_has_the_events_that_there_are() -> None:
    assert ways().keys() == set(EventName)


def test_each_arrow_of_a_task_has_its_event_and_each_event_its_arrows() -> None:
    tasks, *_ = blocks(ROOT / "docs/state-machines.md")
    drawn = {(source.replace("[*]", NOTHING), target) for source, target in _ARROW.findall(tasks.text)}
    told = {(source, way.target) for way in ways().values() for source in way.sources}
    assert {(source.replace(" ", "_"), target.replace(" ", "_")) for source, target in told} == drawn


def test_only_what_has_ended_has_no_way_on() -> None:
    sources = {source for way in ways().values() for source in way.sources}
    assert {way.target for way in ways().values()} - sources == ENDED
