"""The URLs of `django_project`."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/rota/", include("rota.contrib.django.urls")),
    path("admin/", admin.site.urls),
]
