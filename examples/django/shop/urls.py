"""The URLs: two of the shop, the Django admin, and Rota's page in the admin."""

from django.contrib import admin
from django.urls import include, path

from orders import views

urlpatterns = [
    path("orders/", views.create),
    path("orders/<int:order_id>/", views.show),
    path("admin/rota/", include("rota.contrib.django.urls")),  # first, because the admin matches every URL below admin/
    path("admin/", admin.site.urls),
]
