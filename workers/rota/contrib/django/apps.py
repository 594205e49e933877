"""What Django does with the application as it starts, in web processes and in workers alike."""

from importlib import import_module
from typing import Final

from django.apps import AppConfig, apps
from django.core import checks
from django.utils.module_loading import module_has_submodule

from rota.contrib.django import databases, project_settings
from rota.tasks.hooks import around_task

TASKS_MODULE: Final = "tasks"


class RotaConfig(AppConfig):
    """Configures the default client, wraps tasks, and imports the tasks of all applications."""

    name = "rota.contrib.django"
    label = "rota"
    verbose_name = "Rota"

    def ready(self) -> None:
        """Called once, when the models of all applications are loaded."""
        checks.register(project_settings.check_settings, "rota")
        project_settings.configure_client()
        around_task(databases.with_fresh_connections)
        import_tasks()


def import_tasks() -> None:
    """Import `tasks` of every application that has one. What such a module raises is raised."""
    for app in apps.get_app_configs():
        # In ours it is the backend of django.tasks, which not everybody uses.
        if app.name != RotaConfig.name and app.module and module_has_submodule(app.module, TASKS_MODULE):
            import_module(f"{app.name}.{TASKS_MODULE}")
