"""The decisions of the master, as pure functions: no I/O, no clock, no asyncio and no log."""
