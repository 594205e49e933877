"""The master's beat: `livez` allows it to miss two."""

from typing import Final

TICK_SECONDS: Final = 1.0
