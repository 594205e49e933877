"""The package in which Django looks for the application's management commands."""
