"""The folder in which Django finds commands."""
