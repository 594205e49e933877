"""Two views: one places an order, and the other returns the state of an order."""

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_GET, require_POST

from orders.models import Order
from orders.tasks import confirm_order

LIMIT = 1000


class TooExpensive(Exception):
    """Raised if an order exceeds the limit. Because of this exception, Django rolls the request's transaction back."""


@require_POST
def create(request: HttpRequest) -> HttpResponse:
    """Place an order, and enqueue the task that confirms the order. The task is sent only if the request's transaction
    is committed.
    """
    order = Order.objects.create(customer=request.POST["customer"], amount=int(request.POST["amount"]))
    task = confirm_order.enqueue(order.pk)
    if order.amount > LIMIT:
        raise TooExpensive(order)
    return JsonResponse({"order": order.pk, "task": task.id}, status=201)


@require_GET
def show(_request: HttpRequest, order_id: int) -> HttpResponse:
    """Return the state of an order."""
    return JsonResponse({"state": get_object_or_404(Order, id=order_id).state})
