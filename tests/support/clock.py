"""The protocol with a clock that tests can set. The scripts are unchanged, except that they read the time from a key.

A script is composed of shared files, one of which reads the clock. In the composed text, this module replaces the lines
that read the clock, so the installed code needs no option for another clock.
"""

from dataclasses import replace
from functools import cache
from typing import Any, Final, TypeVar

from rota.protocol.scripts import Script, ScriptCall, sha1_of
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
BEGINNING_US: Final = 1_752_345_678_901_234  # a time in 2025 that is not a round number


# The server expires the data of a rate by its own clock, which tests cannot set. On that clock the data might expire
# too early, so it is given an hour.
LASTS: Final = b"local lasts_ms = math.ceil((until_us - now) / 1000) + 1"
LASTS_LONG: Final = b"local lasts_ms = 3600000"


def script_of(name: str, text: bytes) -> Script:
    return Script(name, text, sha1_of(text).encode())


@cache
def on_the_test_clock(script: Script) -> Script:
    """Return the script, changed so that it reads the time from a key of its namespace."""
    assert (LASTS in script.text) is (script.name == "throttle")
    text = script.text.replace(READS_TIME, READS_KEY).replace(LASTS, LASTS_LONG)
    assert b"'TIME'" not in text, f"{script.name} reads the time in a way of its own"
    return script_of(script.name, text)


class TimedFleet(Fleet):
    """A protocol driver with its own clock. The clock advances by a microsecond per call, so no two scripts run at the
    same time.
    """

    def __init__(self, server: Server, namespace: str) -> None:
        super().__init__(server, namespace)
        self.clock_us = BEGINNING_US
        self.scripts_run: list[str] = []
        self._set_clock = script_of("set_clock", SET_CLOCK)

    def run(self, command: ScriptCall[T]) -> T:
        self.clock_us += 1
        self.scripts_run.append(command.script.name)
        command = replace(command, script=on_the_test_clock(command.script))
        set_clock: ScriptCall[Any] = ScriptCall(self._set_clock, (self.keys.tasks,), pack((self.clock_us,)), text_of)
        # The commands are sent in one exchange, because the model test spends half of its time waiting for the server.
        self._connection.send(set_clock.by_text() + command.by_sha())
        self._connection.receive()
        try:
            raw = self._connection.receive()
        except UnknownScript:
            return super().run(command)
        return read_reply(command, raw)

    def forget(self) -> None:
        """Delete all keys of the namespace."""
        found = list(self.redis.scan_iter(match=f"{{{self.keys.namespace}}}:*", count=10_000))
        if found:
            self.redis.delete(*found)
