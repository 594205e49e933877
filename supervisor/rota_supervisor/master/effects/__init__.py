"""The code that performs the effects of the master's core."""
