"""Tasks and Django's database connections: enqueues that wait for commits, and connections that do not outlive their
time."""

from collections.abc import Callable, Generator
from functools import partial

from asgiref.sync import SyncToAsync
from django.db import close_old_connections, connections, reset_queries
from django.db.backends.base.base import BaseDatabaseWrapper

from rota.current import CurrentTask
from rota.registry import default_registry


def on_commit(send: Callable[[], None]) -> None:
    """Call `send` once no transaction is open on any database of this thread; at once when none is. If one of those
    that are open now is rolled back, it is never called.

    Opens no connection, so that it may be called in async code too, where no transaction is ever open.
    """
    open_one = next(filter(_is_in_transaction, connections.all(initialized_only=True)), None)
    if open_one is None:
        send()
    else:
        open_one.on_commit(partial(on_commit, send))


def _is_in_transaction(connection: BaseDatabaseWrapper) -> bool:
    # Without autocommit all is in a transaction of the application's own: Django then says that it cannot tell its end.
    return connection.in_atomic_block or (connection.connection is not None and not connection.autocommit)


def with_fresh_connections(task: CurrentTask) -> Generator[None, None, None]:
    """Around each task: what is broken, or older than CONN_MAX_AGE, is closed, as around a request."""
    _close_old(task)
    try:
        yield
    finally:
        _close_old(task)


def _close_old(task: CurrentTask) -> None:
    reset_queries()
    close_old_connections()
    declared = default_registry.get(task.name)
    if declared is not None and declared.is_async:
        # The connections of an async task are in the thread where asgiref runs what is not async.
        SyncToAsync.single_thread_executor.submit(close_old_connections).result()
