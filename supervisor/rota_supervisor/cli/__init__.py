"""The command line `rota`: one module per command, imported when the command is called."""
