"""The project: settings and addresses."""
