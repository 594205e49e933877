"""The code that performs the effects that the master's core decided on."""
