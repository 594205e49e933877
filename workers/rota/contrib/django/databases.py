"""Tasks and Django's database connections: enqueues that wait for commits, and the closing of old connections."""

from collections.abc import Callable, Generator
from functools import partial

from asgiref.sync import SyncToAsync
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from rota.tasks.hooks import CurrentTask
from rota.tasks.registry import default_registry


def on_commit(send: Callable[[], None]) -> None:
    """Call `send` once every transaction that is open now, on any database of this thread, has been committed. Call it
    at once if none is open. If one of them is rolled back, it is never called.

    This opens no connection, so it may also be called in async code, where no transaction is ever open.
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
    # Without autocommit, every query is in a transaction of the application, whose end Django does not know and reports
    # so.
    return connection.in_atomic_block or (connection.connection is not None and not connection.autocommit)


def with_fresh_connections(task: CurrentTask) -> Generator[None, None, None]:
    """Close connections that are broken or older than CONN_MAX_AGE, before and after each task, as Django does for
    requests."""
    _close_old(task)
    try:
        yield
    finally:
        _close_old(task)


def _close_old(task: CurrentTask) -> None:
    _close_old_of_thread()
    declared = default_registry.get(task.name)
    if declared is not None and declared.is_async:
        # The connections of an async task are in the thread in which asgiref runs synchronous code.
        SyncToAsync.single_thread_executor.submit(_close_old_of_thread).result()


def _close_old_of_thread() -> None:
    for connection in connections.all(initialized_only=True):
        # A worker has no open transaction here, but a test that runs tasks may have one. It must close the connection
        # itself.
        if not connection.in_atomic_block:
            connection.queries_log.clear()
            connection.close_if_unusable_or_obsolete()
