"""What the fleet tells: events, log lines, and numbers in shared memory."""
