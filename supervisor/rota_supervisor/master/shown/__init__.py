"""What people, probes and service managers are shown."""
