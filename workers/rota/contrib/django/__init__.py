"""Rota in Django: an application for INSTALLED_APPS. See docs/frameworks.md."""
