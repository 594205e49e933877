"""The shop's tasks. `rota.contrib.django` imports this module, in web processes and in workers."""

import rota
from orders.models import Order


@rota.task(retries=5, time_limit=30)
def confirm_order(order_id: int) -> None:
    """Confirm an order. The task may run twice without harm, because a confirmed order stays as it is."""
    Order.objects.filter(id=order_id, state="placed").update(state="confirmed")
