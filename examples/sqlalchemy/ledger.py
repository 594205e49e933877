"""A ledger of transfers with SQLAlchemy. Each task has its own session, and tasks are sent after the commit."""

import os
from collections.abc import Callable, Generator
from contextvars import ContextVar

from sqlalchemy import create_engine, event
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, SessionTransaction, mapped_column, sessionmaker

import rota


class Base(DeclarativeBase):
    """The base class of all tables."""


class Transfer(Base):
    """A transfer, which the application requests and a task books."""

    __tablename__ = "transfers"
    id: Mapped[int] = mapped_column(primary_key=True)
    amount: Mapped[int]
    state: Mapped[str] = mapped_column(default="requested")


# An engine connects when it is first used. Do not use this engine while the module is imported, because workers are
# forked afterwards and would share the connection.
engine = create_engine(os.environ.get("LEDGER_URL", "sqlite:///ledger.sqlite3"), connect_args={"timeout": 20})
new_session = sessionmaker(engine)


# The session of each task

_session: ContextVar[Session] = ContextVar("session")


def session() -> Session:
    """Return the session of the running task."""
    return _session.get()


@rota.around_task
def session_per_task(_task: rota.CurrentTask) -> Generator[None, None, None]:
    """Commit the session if the task returns. If the task raises an exception, roll the session back and let the task
    fail, so that it is retried from the start."""
    with new_session.begin() as opened:
        token = _session.set(opened)
        try:
            yield
        finally:
            _session.reset(token)


# The hook that sends tasks after the commit

Callback = Callable[[], None]
_WAITING = "rota: what waits for the commit"


def on_commit(of: Session) -> Callable[[Callback], None]:
    """Return a hook for `using(on_commit=...)`, which sends the task when the session's outermost transaction commits.

    The task is not sent if that transaction, or the savepoint in which it was enqueued, is rolled back. A session
    begins a transaction only with its first statement. If no transaction has begun yet, the hook begins one, so that
    there will be a commit.
    """

    def wait(callback: Callback) -> None:
        transaction = of.get_nested_transaction() or of.get_transaction() or of.begin()
        of.info.setdefault(_WAITING, []).append((transaction, callback))

    return wait


@event.listens_for(Session, "after_commit")
def _send(committed: Session) -> None:
    if not committed.in_nested_transaction():  # SQLAlchemy reports the end of a savepoint as a commit too
        for _, callback in committed.info.pop(_WAITING, ()):
            callback()


@event.listens_for(Session, "after_soft_rollback")
def _forget(rolled_back: Session, transaction: SessionTransaction) -> None:
    waiting = rolled_back.info.get(_WAITING, [])
    waiting[:] = [(within, callback) for within, callback in waiting if not _is_inside(within, transaction)]


def _is_inside(inner: SessionTransaction | None, outer: SessionTransaction) -> bool:
    while inner is not None and inner is not outer:
        inner = inner.parent
    return inner is outer


# The application


@rota.task(retries=5, time_limit=30)
def book(transfer_id: int) -> None:
    """Book a transfer. The task may run twice without harm, because a booked transfer stays as it is."""
    transfer = session().get_one(Transfer, transfer_id)
    if transfer.amount <= 0:
        raise rota.Dead(f"the amount of transfer {transfer_id} is {transfer.amount}, but must be more than 0")
    transfer.state = "booked"


def request_transfer(amount: int) -> tuple[int, str]:
    """Store a transfer, and enqueue the task that books the transfer. Either both happen or neither. Return the ids of
    the transfer and the task.
    """
    with new_session.begin() as opened:
        transfer = Transfer(amount=amount)
        opened.add(transfer)
        opened.flush()  # makes the database assign the id
        task = book.using(on_commit=on_commit(opened)).enqueue(transfer.id)
        return transfer.id, task.id
