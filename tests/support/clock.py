"""The protocol on a clock that tests move: the scripts as they are, but that they read the time from a key.

A script is put together from shared files, and one of them reads the clock. Here the lines that do are exchanged in the
finished text, so nothing in what is installed can be told to read another clock.
"""

from dataclasses import replace
from functools import cache
from typing import Any, Final, TypeVar

from rota.protocol.command import Command, Script, sha1_of
from rota.protocol.wire import pack, text_of
from rota.server.server_errors import UnknownScript, read_reply
from support.protocol import Fleet
from support.servers import Server

T = TypeVar("T")

READS_TIME: Final = b"""  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
"""
READS_KEY: Final = b"  return tonumber(redis.call('GET', PREFIX .. 'clock'))\n"
SET_CLOCK: Final = b"#!lua flags=allow-oom\nreturn redis.call('SET', string.sub(KEYS[1], 1, -6) .. 'clock', ARGV[1])"
BEGINNING_US: Final = 1_752_345_678_901_234  # some day in 2025, and no round number


# By the server's own clock, which the tests do not move, what is known of a rate would be over too soon.
LASTS: Final = b"local lasts_ms = math.ceil((untill - now) / 1000) + 1"
LASTS_LONG: Final = b"local lasts_ms = 3600000"


def script_of(name: str, text: bytes) -> Script:
    return Script(name, text, sha1_of(text).encode())


@cache
def on_the_test_clock(script: Script) -> Script:
    """The same script on the clock of its namespace."""
    text = script.text.replace(READS_TIME, READS_KEY).replace(LASTS, LASTS_LONG)
    assert b"'TIME'" not in text, f"{script.name} reads the time in a way of its own"
    return script_of(script.name, text)


class TimedFleet(Fleet):
    """The protocol, one call at a time and each a microsecond after the other: no two scripts have the same time."""

    def __init__(self, server: Server, namespace: str) -> None:
        super().__init__(server, namespace)
        self.clock_us = BEGINNING_US
        self.scripts_run: list[str] = []
        self._set_clock = script_of("set_clock", SET_CLOCK)

    def run(self, command: Command[T]) -> T:
        self.clock_us += 1
        self.scripts_run.append(command.script.name)
        command = replace(command, script=on_the_test_clock(command.script))
        set_clock: Command[Any] = Command(self._set_clock, self.keys.tasks, pack((self.clock_us,)), text_of)
        # In one exchange, as half of the model's time is spent waiting for the server.
        self._connection.send(set_clock.by_text() + command.by_sha())
        self._connection.receive()
        try:
            raw = self._connection.receive()
        except UnknownScript:
            return super().run(command)
        return read_reply(command, raw)

    def forget(self) -> None:
        """Delete all of the namespace."""
        found = list(self.redis.scan_iter(match=f"{{{self.keys.namespace}}}:*", count=10_000))
        if found:
            self.redis.delete(*found)
