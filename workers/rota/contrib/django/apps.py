"""Rota as an application of a Django project. It reads the setting `ROTA`, delays enqueues until transactions are
committed, and closes old database connections before and after each task."""

import os
from collections.abc import Callable, Generator, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from asgiref.sync import SyncToAsync
from django.apps import AppConfig, apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register  # noqa: A004 - as Django names it
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.module_loading import module_has_submodule

import rota
from rota.client.default_clients import resolve
from rota.durations import positive_seconds
from rota.errors import NotConfigured
from rota.server.address import parse_address
from rota.server.session import level_of
from rota.tasks.fleet_settings import ClientSettings, check_payload_limit
from rota.tasks.hooks import CurrentTask, around_task
from rota.tasks.options import check_boolean, require_name
from rota.tasks.registry import default_registry


def _check_text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, got a value of type {type(value).__name__}")
    return value


class _Setting(NamedTuple):
    check: Callable[[Any, str], object]
    variable: str = ""  # name of the environment variable that passes the setting to a fleet


_SETTINGS: Final = {
    "redis_url": _Setting(lambda value, name: parse_address(_check_text(value, name)), "ROTA_REDIS_URL"),
    "namespace": _Setting(lambda value, name: require_name(name, value), "ROTA_NAMESPACE"),
    "max_payload_kb": _Setting(lambda value, _: check_payload_limit(value), "ROTA_LIMITS__MAX_PAYLOAD_KB"),
    "durability": _Setting(lambda value, name: level_of(_check_text(value, name)), "ROTA_DURABILITY"),
    "timeout_seconds": _Setting(positive_seconds),
    "redis_tls_ca": _Setting(_check_text, "ROTA_REDIS_TLS_CA"),
    "redis_tls_cert": _Setting(_check_text, "ROTA_REDIS_TLS_CERT"),
    "redis_tls_key": _Setting(_check_text, "ROTA_REDIS_TLS_KEY"),
    "redis_credentials": _Setting(_check_text, "ROTA_REDIS_CREDENTIALS"),
    "on_commit": _Setting(check_boolean),
}


def variables_of_project() -> dict[str, str]:
    """Return environment variables that contain the settings in `ROTA`, to pass them to a fleet."""
    return {_SETTINGS[name].variable: str(value) for name, value in of_project().items() if _SETTINGS[name].variable}


def of_project() -> dict[str, Any]:
    """Return those settings in `ROTA` whose names are valid, or {} if `ROTA` is missing or not a dict."""
    given = getattr(settings, "ROTA", {})
    return {name: given[name] for name in _SETTINGS if name in given} if isinstance(given, dict) else {}


def configure_client() -> None:
    """Make the default client use the settings in `ROTA`.

    A setting that is not valid raises no error here, because the system check reports it.
    """
    given = of_project()
    waits = given.pop("on_commit", True)
    # Leave out invalid values. `configure` would raise an error for them before the system check could report them.
    for name in ("timeout_seconds", "max_payload_kb"):
        if name in given and _fault_in(name, given[name]):
            del given[name]
    rota.configure(**given, on_commit=on_commit if waits else None)


def check_settings(**_: Any) -> list[CheckMessage]:
    """Run the system check: return an error for each fault in `ROTA`, and a warning if no server is configured."""
    given = getattr(settings, "ROTA", {})
    if not isinstance(given, dict):
        hint = 'For example: ROTA = {"redis_url": "redis://...", "namespace": "..."}.'
        return [Error(f"ROTA must be a dict, got {type(given).__name__}.", hint=hint, id="rota.E001")]
    return [*_unknown(given), *_wrong(given)] or list(_without_server())


def _unknown(given: Mapping[Any, Any]) -> Iterator[CheckMessage]:
    for name in given:
        if name not in _SETTINGS:
            close = get_close_matches(str(name), _SETTINGS, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"The settings in ROTA are {', '.join(_SETTINGS)}."
            yield Error(f"ROTA has no setting {name!r}.", hint=hint, id="rota.E002")


def _wrong(given: Mapping[Any, Any]) -> Iterator[CheckMessage]:
    for name in _SETTINGS:
        if name in given and (fault := _fault_in(name, given[name])):
            yield Error(f'ROTA["{name}"]: {fault}.', hint=f'Correct ROTA["{name}"] in your settings.', id="rota.E003")


def _fault_in(name: str, value: Any) -> str:
    try:
        _SETTINGS[name].check(value, name)
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def _without_server() -> Iterator[CheckMessage]:
    try:
        found = resolve(ClientSettings(of_project().get("redis_url")), os.environ, Path.cwd())
    except NotConfigured as error:
        yield Error(f"{error}.", hint='Correct this, or set ROTA["redis_url"] in your settings.', id="rota.E004")
        return
    if found.redis_url is None:
        hint = 'Set ROTA["redis_url"] in your settings, or the environment variable ROTA_REDIS_URL.'
        yield Warning("No server is configured, so enqueueing tasks will fail.", hint=hint, id="rota.W001")


TASKS_MODULE: Final = "tasks"


class RotaConfig(AppConfig):
    """The Django application. It configures the default client, closes old database connections before and after each
    task, and imports the `tasks` modules of all applications."""

    name = "rota.contrib.django"
    label = "rota"
    verbose_name = "Rota"

    def ready(self) -> None:
        """Set Rota up. Django calls this once, when the models of all applications are loaded."""
        register(check_settings, "rota")
        configure_client()
        around_task(with_fresh_connections)
        import_tasks()


def import_tasks() -> None:
    """Import the module `tasks` of every application that has one. Errors that a module raises are not caught."""
    for app in apps.get_app_configs():
        # Skip this application, whose module `tasks` is the backend for django.tasks, which not every project uses.
        if app.name != RotaConfig.name and app.module and module_has_submodule(app.module, TASKS_MODULE):
            import_module(f"{app.name}.{TASKS_MODULE}")


# Database connections


def on_commit(send: Callable[[], None]) -> None:
    """Call `send` when all transactions that are open in this thread have been committed, or at once if none is open.

    Transactions on all databases count. If one of them is rolled back, `send` is never called.

    This function opens no connection, so async code, in which no transaction is ever open, may call it too.
    """
    waits_for = list(filter(_is_in_transaction, connections.all(initialized_only=True)))
    if not waits_for:
        send()
        return

    def commit_of(connection: BaseDatabaseWrapper) -> None:
        waits_for.remove(connection)
        if not waits_for:
            send()

    for connection in list(waits_for):
        connection.on_commit(partial(commit_of, connection))


def _is_in_transaction(connection: BaseDatabaseWrapper) -> bool:
    # Without autocommit, every query is part of a transaction that the application manages itself. Django does not know
    # when this transaction ends, so `connection.on_commit` raises an error.
    return connection.in_atomic_block or (connection.connection is not None and not connection.autocommit)


def with_fresh_connections(task: CurrentTask) -> Generator[None, None, None]:
    """Close database connections that are broken or older than CONN_MAX_AGE, before and after each task.

    Django does the same before and after each request.
    """
    _close_old(task)
    try:
        yield
    finally:
        _close_old(task)


def _close_old(task: CurrentTask) -> None:
    _close_old_of_thread()
    declared = default_registry.get(task.name)
    if declared is not None and declared.is_async:
        # The connections of an async task belong to the thread in which asgiref runs synchronous code.
        SyncToAsync.single_thread_executor.submit(_close_old_of_thread).result()


def _close_old_of_thread() -> None:
    for connection in connections.all(initialized_only=True):
        # In a worker, no transaction is open here, but a test that runs tasks may have opened one. The test then closes
        # the connection itself.
        if not connection.in_atomic_block:
            connection.queries_log.clear()
            connection.close_if_unusable_or_obsolete()
