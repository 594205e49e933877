"""The ledger's own tests. They need no Redis, because `rota_capture` collects the enqueued tasks and can run them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from ledger import Base, Transfer, book, new_session, on_commit, request_transfer
from rota.testing import Capture


@pytest.fixture(autouse=True)
def _database(tmp_path: Path) -> Iterator[None]:
    engine = create_engine(f"sqlite:///{tmp_path}/ledger.sqlite3")
    Base.metadata.create_all(engine)
    before = new_session.kw["bind"]
    new_session.configure(bind=engine)
    yield
    new_session.configure(bind=before)
    engine.dispose()


def state_of(transfer_id: int) -> str:
    with new_session() as session:
        return session.get_one(Transfer, transfer_id).state


def test_a_transfer_is_booked_by_its_task(rota_capture: Capture) -> None:
    transfer_id, _ = request_transfer(10)
    rota_capture.assert_enqueued(book, args=[transfer_id])
    rota_capture.drain()
    assert state_of(transfer_id) == "booked"


def test_the_writes_of_a_failing_task_are_rolled_back(rota_capture: Capture) -> None:
    transfer_id, _ = request_transfer(-1)
    rota_capture.drain(raises=False)
    assert state_of(transfer_id) == "requested"


def test_nothing_is_enqueued_before_the_commit(rota_capture: Capture) -> None:
    with new_session.begin() as session:
        book.using(on_commit=on_commit(session)).enqueue(1)
        rota_capture.assert_not_enqueued()
    rota_capture.assert_enqueued(book, args=[1])


def test_nothing_is_enqueued_after_a_rollback(rota_capture: Capture) -> None:
    with new_session() as session:
        book.using(on_commit=on_commit(session)).enqueue(1)
        session.rollback()
        session.add(Transfer(amount=1))
        session.commit()
    rota_capture.assert_not_enqueued()


def test_a_rolled_back_savepoint_drops_its_enqueues(rota_capture: Capture) -> None:
    with new_session.begin() as session:
        with session.begin_nested() as kept:
            book.using(on_commit=on_commit(session)).enqueue(1)
            kept.commit()
        rota_capture.assert_not_enqueued()
        with session.begin_nested() as outer:
            with session.begin_nested():
                book.using(on_commit=on_commit(session)).enqueue(2)
            outer.rollback()
    assert [call.args for call in rota_capture] == [[1]]
