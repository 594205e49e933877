"""Accounts and transfers, in SQLAlchemy: a session for each task, and tasks that wait for the commit."""

import os
from collections.abc import Callable, Generator
from contextvars import ContextVar

from sqlalchemy import create_engine, event
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, SessionTransaction, mapped_column, sessionmaker

import rota


class Base(DeclarativeBase):
    """All tables."""


class Transfer(Base):
    """Money on its way: requested by the application, booked by a task."""

    __tablename__ = "transfers"
    id: Mapped[int] = mapped_column(primary_key=True)
    amount: Mapped[int]
    state: Mapped[str] = mapped_column(default="requested")


# An engine connects when it is first used. That must not be here: workers are forked from a process that imported this.
engine = create_engine(os.environ.get("LEDGER_URL", "sqlite:///ledger.sqlite3"), connect_args={"timeout": 20})
new_session = sessionmaker(engine)


# A session for each task

_session: ContextVar[Session] = ContextVar("session")


def session() -> Session:
    """The session of the task that runs."""
    return _session.get()


@rota.around_task
def session_per_task(_task: rota.CurrentTask) -> Generator[None, None, None]:
    """Commit when the task returns; roll back when it raises, and let it fail: it is tried again from the start."""
    with new_session.begin() as opened:
        token = _session.set(opened)
        try:
            yield
        finally:
            _session.reset(token)


# Tasks that wait for the commit

Callback = Callable[[], None]
_WAITING = "rota: what waits for the commit"


def on_commit(of: Session) -> Callable[[Callback], None]:
    """For `using(on_commit=...)`: sends when this session's outermost transaction is committed, and not when that, or
    the savepoint in which it was asked for, is rolled back. A session begins a transaction with its first statement;
    the call begins one too, so that there is something to commit."""

    def wait(callback: Callback) -> None:
        transaction = of.get_nested_transaction() or of.get_transaction() or of.begin()
        of.info.setdefault(_WAITING, []).append((transaction, callback))

    return wait


@event.listens_for(Session, "after_commit")
def _send(committed: Session) -> None:
    if not committed.in_nested_transaction():  # the end of a savepoint is told as a commit too
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
    """Book a transfer; one that is booked stays as it is, so that a repeated run does no harm."""
    transfer = session().get_one(Transfer, transfer_id)
    if transfer.amount <= 0:
        raise rota.Dead(f"transfer {transfer_id} is of {transfer.amount}")
    transfer.state = "booked"


def request_transfer(amount: int) -> tuple[int, str]:
    """Note a transfer and have it booked, both or neither; returns the ids of the transfer and the task."""
    with new_session.begin() as opened:
        transfer = Transfer(amount=amount)
        opened.add(transfer)
        opened.flush()  # gives it its id
        task = book.using(on_commit=on_commit(opened)).enqueue(transfer.id)
        return transfer.id, task.id
