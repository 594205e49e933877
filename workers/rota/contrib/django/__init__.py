"""Rota in Django: an application for INSTALLED_APPS. docs/frameworks.md says what it does."""
