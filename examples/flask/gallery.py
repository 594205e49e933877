"""A gallery in Flask: uploading a picture enqueues its thumbnail, and another address tells how far that is."""

from flask import Flask, request
from flask.typing import ResponseReturnValue

import rota
from gallery_tasks import make_thumbnail


def create_app() -> Flask:
    """The application. It connects to Redis at the first enqueue, so each process of the server has connections of its
    own, whether that forks or not."""
    app = Flask(__name__)
    app.add_url_rule("/pictures", view_func=upload, methods=["POST"])
    app.add_url_rule("/tasks/<task_id>", view_func=progress)
    app.register_error_handler(rota.Unavailable, unavailable)
    app.register_error_handler(rota.Uncertain, unavailable)
    return app


def upload() -> ResponseReturnValue:
    """Take a picture."""
    handle = make_thumbnail.enqueue(request.form["name"])
    return {"task": handle.id}, 202


def progress(task_id: str) -> ResponseReturnValue:
    """How far a task is: asked at the server, without waiting."""
    status = rota.status(task_id)
    is_known = status.state != "unknown" or not status.error
    return {"state": status.state, "error": status.error}, 200 if is_known else 503


def unavailable(error: Exception) -> ResponseReturnValue:
    """Nothing was enqueued, or it was sent and no answer came: whoever asked may ask again, as a second thumbnail
    does no harm."""
    return {"error": str(error)}, 503
