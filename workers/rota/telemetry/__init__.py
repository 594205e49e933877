"""The telemetry of a fleet: events, log lines, and metrics in shared memory."""
