"""A program that creates the tables, requests three transfers and waits until they are booked: python transfer.py."""

import rota
from ledger import Base, Transfer, engine, new_session, request_transfer


def main() -> None:
    """Create the tables. Then request three transfers, and wait until each is booked before requesting the next."""
    Base.metadata.create_all(engine)
    for amount in (10, 20, 30):
        transfer_id, task_id = request_transfer(amount)
        rota.default_client().wait(task_id, timeout=30)
        with new_session() as session:
            print(f"transfer {transfer_id} is {session.get_one(Transfer, transfer_id).state}")


if __name__ == "__main__":
    main()
