"""Numbers that hold where nothing else is configured, and the most that can be: for the configuration as well, which is
read before anything of the protocol is needed."""

from typing import Final

DEFAULT_CRASH_LIMIT: Final = 3
MOST_CRASHES: Final = 1000  # that a task may be allowed
DEFAULT_LOSS_LIMIT: Final = 5
DEFAULT_ENDED_KEEP: Final = 10_000  # as KEEP in lua/shared/ending.lua, which goes by it before a master has spoken
MOST_ENDED_KEEP: Final = 1_000_000
DEFAULT_FORGET_SECONDS: Final = 300.0  # after which an empty queue of a pattern leaves nothing
