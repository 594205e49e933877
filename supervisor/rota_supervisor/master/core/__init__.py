"""What the master decides: pure. No I/O, no clock, no asyncio, no log."""
