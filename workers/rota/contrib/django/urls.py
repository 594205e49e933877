"""An admin page for staff. It shows the queues with their numbers of tasks, shows the status of the task with a given
id, and can revive or purge dead tasks.

Add its URLs with `path("admin/rota/", include("rota.contrib.django.urls"))`, before the URLs of the admin.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, Final

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.utils.translation import ngettext
from django.views.decorators.http import require_GET, require_POST

from rota.client.default_clients import default_client
from rota.client.queues import QueueCounts
from rota.client.status import TaskStatus
from rota.errors import RotaError
from rota.protocol.task_states import State

MOST_QUEUES: Final = 200
MOST_DEAD: Final = 100


@require_GET
def fleet(request: HttpRequest) -> HttpResponse:
    """Show the queues, starting with those that have the most tasks, and the latest dead tasks.

    If the parameter `queue` names a queue, show only the dead tasks of that queue.
    """
    queue = request.GET.get("queue", "")
    try:
        client = default_client()
        queues = sorted(client.queues(), key=_most_to_do_first)
        dead = client.peek(queue or None, State.DEAD, limit=MOST_DEAD)
    except (RotaError, ValueError) as error:
        return _page(request, "fleet", {"error": str(error)}, status=503)
    shown = {"queues": queues[:MOST_QUEUES], "left_out": len(queues[MOST_QUEUES:]), "dead": dead, "queue": queue}
    return _page(request, "fleet", shown)


@require_POST
def steer_dead(request: HttpRequest) -> HttpResponse:
    """Revive or purge the selected dead tasks, then redirect to the page of the fleet."""
    try:
        client = default_client()
        chosen = request.POST.getlist("id")
        if "revive" in request.POST:
            _report_success(request, _count(client.revive, chosen), "%d task revived", "%d tasks revived")
        elif "purge" in request.POST:
            _report_success(request, _count(client.purge_dead, chosen), "%d task purged", "%d tasks purged")
    except (RotaError, ValueError) as error:
        messages.error(request, str(error))
    return redirect("rota:fleet")


@require_GET
def task(request: HttpRequest) -> HttpResponse:
    """Show the status of the task that the parameter `id` names."""
    task_id = request.GET.get("id", "").strip()
    try:
        status = default_client().status(task_id, args=True)
    except (RotaError, ValueError) as error:
        return _page(request, "task", {"error": str(error)}, status=503)
    return _page(request, "task", {"task": status, "rows": _rows(status)})


def _most_to_do_first(counts: QueueCounts) -> tuple[int, str]:
    return -(counts.ready + counts.scheduled + counts.running + counts.dead), counts.queue


def _count(steer: Callable[[str], bool], ids: Sequence[str]) -> int:
    return sum(map(steer, ids))


def _report_success(request: HttpRequest, count: int, one: str, many: str) -> None:
    messages.success(request, ngettext(one, many, count) % count)


def _rows(status: TaskStatus) -> list[tuple[str, Any]]:
    values = ((each.name, getattr(status, each.name)) for each in fields(status))
    return [(name.replace("_", " "), value) for name, value in values if value not in (None, "", ())]


def _page(request: HttpRequest, name: str, values: dict[str, Any], *, status: int = 200) -> HttpResponse:
    return render(request, f"rota/{name}.html", {**admin.site.each_context(request), **values}, status=status)


app_name = "rota"
urlpatterns = [
    path("", admin.site.admin_view(fleet), name="fleet"),
    path("dead/", admin.site.admin_view(steer_dead), name="dead"),
    path("task/", admin.site.admin_view(task), name="task"),
]
