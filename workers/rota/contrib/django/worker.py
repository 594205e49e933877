"""What a fleet imports to run the tasks of a Django project: `imports = ["rota.contrib.django.worker"]`.

The project is the one that DJANGO_SETTINGS_MODULE names.
"""

import django
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from rota.contrib.django.apps import RotaConfig

django.setup()
if not apps.is_installed(RotaConfig.name):
    raise ImproperlyConfigured(f'no task was imported: add "{RotaConfig.name}" to INSTALLED_APPS')
connections.close_all()  # what an application opened as it started is not for all workers to share
