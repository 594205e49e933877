"""The shop's own tests, which need neither Redis nor a fleet: python manage.py test."""

from django.test import TestCase

import rota.testing
from orders.models import Order
from orders.tasks import confirm_order
from orders.views import TooExpensive


class PlacingAnOrder(TestCase):
    """Tests of the tasks that a request enqueues."""

    def test_an_order_is_confirmed_once_its_request_is_committed(self) -> None:
        # TestCase never commits, so the test makes it run the callbacks that a commit would run.
        with rota.testing.capture() as captured, self.captureOnCommitCallbacks(execute=True):
            placed = self.client.post("/orders/", {"customer": "Ann", "amount": "7"}).json()
        captured.assert_enqueued(confirm_order, args=[placed["order"]])

    def test_an_order_that_is_refused_enqueues_nothing(self) -> None:
        with (
            rota.testing.capture() as captured,
            self.captureOnCommitCallbacks(execute=True),
            self.assertRaises(TooExpensive),
        ):
            self.client.post("/orders/", {"customer": "Bob", "amount": "7000"})
        captured.assert_not_enqueued()
        assert not Order.objects.exists()


class ConfirmingAnOrder(TestCase):
    """Tests of the task, which they call like any function."""

    def test_a_placed_order_is_confirmed(self) -> None:
        order = Order.objects.create(customer="Ann", amount=7)
        confirm_order(order.pk)
        order.refresh_from_db()
        assert order.state == "confirmed"
