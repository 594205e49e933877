"""The command line `rota`: one module a command, imported when it is called."""
