"""The master's end of a zygote's channel."""

import asyncio
import os
from pathlib import Path

import pytest

from rota_supervisor import messages
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import ChildRef
from rota_supervisor.master.effects.processes import ZygoteLine

ZYGOTE = ChildRef(Role.ZYGOTE, 2, 1)

_FORGED = [
    b"[" * 100_000,
    b'{"type": "Bye"}',
    b'{"type": "Spawned", "slot": [8], "nonce": 1, "pid": 2}',
    b'{"type": "Spawned", "slot": 8, "nonce": 1, "pid": "2"}',
    b'{"type": "Imported", "tasks": 7}',
    b'{"type": "Imported", "tasks": [[[], []]]}',
    b'{"type": "Imported", "tasks": [["note", 1]]}',
]


@pytest.mark.parametrize("written", [b"hello", b"\xff", b"[1]", b"7", b'"type"', b"{}", b'{"type": "x"}', *_FORGED])
def test_invalid_messages_in_a_zygotes_channel_cause_only_a_warning(written: bytes) -> None:
    async def received() -> list[messages.Message | None]:
        ours, theirs = messages.pair()
        ours.setblocking(False)
        line = ZygoteLine(ZYGOTE, 1, ours, lambda: None)
        theirs.send(written)
        messages.send(theirs, messages.Importing("shop"))
        theirs.close()
        return list(line.read())

    warned, importing, end = asyncio.run(received())
    assert isinstance(warned, messages.Warned)
    assert "descriptor 3" in warned.text
    assert (importing, end) == (messages.Importing("shop"), None)


def test_the_last_messages_of_an_exited_zygote_are_received() -> None:
    async def received() -> list[messages.Message | None]:
        ours, theirs = messages.pair()
        ours.setblocking(False)
        line = ZygoteLine(ZYGOTE, 1, ours, lambda: None)
        with Path(os.devnull).open("rb") as slots:
            line.send_slots(slots.fileno())
        messages.send(theirs, messages.ImportFailed("shop", "ImportError: no", "shop.py:1"))
        theirs.close()
        return list(line.read())

    assert asyncio.run(received()) == [messages.ImportFailed("shop", "ImportError: no", "shop.py:1"), None]
