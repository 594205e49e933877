"""From the fleet as it should be to the next actions. Pure."""
