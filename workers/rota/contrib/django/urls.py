"""The admin page's addresses: `path("admin/rota/", include("rota.contrib.django.urls"))`, before those of the admin."""

from django.contrib import admin
from django.urls import path

from rota.contrib.django import views

app_name = "rota"
urlpatterns = [
    path("", admin.site.admin_view(views.fleet), name="fleet"),
    path("dead/", admin.site.admin_view(views.steer_dead), name="dead"),
    path("task/", admin.site.admin_view(views.task), name="task"),
]
