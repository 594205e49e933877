"""The telemetry of a fleet: its events, its log lines, and metrics in shared memory."""
