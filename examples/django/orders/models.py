"""The orders of the shop."""

from django.db import models


class Order(models.Model):
    """An order. A request places it, and a task confirms it."""

    customer = models.CharField(max_length=100)
    amount = models.IntegerField()
    state = models.CharField(max_length=20, default="placed")

    def __str__(self) -> str:
        return f"{self.customer}: {self.amount} ({self.state})"
