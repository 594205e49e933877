"""The module that a fleet imports to run the tasks of a Django project: `imports = ["rota.contrib.django.worker"]`.

DJANGO_SETTINGS_MODULE names the project.
"""

import django
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from rota.contrib.django.apps import RotaConfig

django.setup()
if not apps.is_installed(RotaConfig.name):
    raise ImproperlyConfigured(
        f'the tasks of this project were not imported: add "{RotaConfig.name}" to INSTALLED_APPS'
    )
connections.close_all()  # applications may have opened connections while they were loaded, which workers must not share
