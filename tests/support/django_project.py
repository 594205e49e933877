"""A Django project in the test process, with Rota's application, the admin, and two in-memory databases.

Django's settings apply to the whole process. `set_up_again` reverts what Rota's application adds, that is, its hook and
the default client.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import django
import pytest
from django.apps import apps
from django.conf import settings
from django.core.management import call_command

import rota.client.default_clients
from rota.contrib.django.apps import RotaConfig
from rota.tasks.hooks import default_hooks

_DATABASE = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
_PROCESSORS = ["request", "auth", "messages"]


def _configure() -> None:
    settings.configure(
        SECRET_KEY="of a test",
        USE_TZ=True,
        ALLOWED_HOSTS=["testserver"],
        ROOT_URLCONF="support.django_urls",
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        INSTALLED_APPS=[f"django.contrib.{name}" for name in ("admin", "auth", "contenttypes", "messages", "sessions")]
        + [RotaConfig.name],
        DATABASES={"default": _DATABASE, "other": _DATABASE},
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
            "django.middleware.csrf.CsrfViewMiddleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
    )
    django.setup()
    call_command("migrate", verbosity=0)


@contextmanager
def set_up_again(given: object) -> Iterator[None]:
    """Start Rota's Django application with `given` as the setting `ROTA`. At the end of the block, revert what it
    changed in the process.
    """
    if not settings.configured:
        _configure()
    around = list(default_hooks.around)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "ROTA", given, raising=False)
        patch.setattr("rota.client.default_clients._default", rota.client.default_clients.DefaultClient())
        apps.get_app_config("rota").ready()
        try:
            yield
        finally:
            default_hooks.around[:] = around
