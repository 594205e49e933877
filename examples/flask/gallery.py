"""A gallery with Flask. An upload enqueues a task that makes the thumbnail, and another endpoint returns the state of
the task.
"""

from flask import Flask, request
from flask.typing import ResponseReturnValue

import rota
from gallery_tasks import make_thumbnail


def create_app() -> Flask:
    """Return the application. A process connects to Redis when it first enqueues a task, so each process of the web
    server has its own connections, whether or not the server forks.
    """
    app = Flask(__name__)
    app.add_url_rule("/pictures", view_func=upload, methods=["POST"])
    app.add_url_rule("/tasks/<task_id>", view_func=progress)
    app.register_error_handler(rota.Unavailable, unavailable)
    app.register_error_handler(rota.Uncertain, unavailable)
    return app


def upload() -> ResponseReturnValue:
    """Accept a picture, and enqueue the task that makes its thumbnail."""
    handle = make_thumbnail.enqueue(request.form["name"])
    return {"task": handle.id}, 202


def progress(task_id: str) -> ResponseReturnValue:
    """Return the state of a task, without waiting for its end."""
    status = rota.status(task_id)
    is_known = status.state != "unknown" or not status.error
    return {"state": status.state, "error": status.error}, 200 if is_known else 503


def unavailable(error: Exception) -> ResponseReturnValue:
    """Report that Redis was not reachable, so nothing was enqueued, or that its reply did not arrive, so the task may
    have been enqueued. In both cases, the client may repeat the request, because a second thumbnail does no harm.
    """
    return {"error": str(error)}, 503
