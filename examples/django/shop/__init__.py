"""The Django project: its settings and URLs."""
