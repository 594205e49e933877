"""The master, which supervises the fleet. It runs no task code, imports no user code, and never forks."""
