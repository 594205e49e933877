"""An order, and how far it is."""

from django.db import models


class Order(models.Model):
    """Placed in a request; confirmed by a task."""

    customer = models.CharField(max_length=100)
    amount = models.IntegerField()
    state = models.CharField(max_length=20, default="placed")

    def __str__(self) -> str:
        return f"{self.customer}: {self.amount} ({self.state})"
