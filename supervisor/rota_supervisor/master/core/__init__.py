"""The decisions of the master, as pure functions. They do no I/O, read no clock, do not use asyncio, and write no
log."""
