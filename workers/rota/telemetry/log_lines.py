"""The counts of log lines that were dropped or cut, as metrics."""

from rota.telemetry import log
from rota.telemetry.log_fields import Counts
from rota.telemetry.metrics import LOG_LINES_DROPPED, LOG_LINES_TRUNCATED
from rota.telemetry.recorder import Recorder


class LogLines:
    """Carries this process's counts over into its slot."""

    def __init__(self, recorder: Recorder) -> None:
        self._dropped = recorder.counter(LOG_LINES_DROPPED)
        self._truncated = recorder.counter(LOG_LINES_TRUNCATED)
        self._told = Counts()

    def record(self) -> None:
        """Count what came since the last time; called now and then."""
        counts = log.counts()
        if counts == self._told:
            return
        self._dropped.add(counts.dropped - self._told.dropped)
        self._truncated.add(counts.truncated - self._told.truncated)
        self._told = Counts(counts.dropped, counts.truncated)
