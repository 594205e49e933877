"""The background work of the master: calls that its loop starts and does not wait for."""

import asyncio

import pytest

from rota_supervisor.master.effects.background import Background


def test_background_work_is_restarted_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota_supervisor.master.effects.background._PAUSE_SECONDS", 0.0)

    async def begun() -> int:
        background = Background()
        times = 0
        renewed = asyncio.Event()

        async def renew() -> None:
            nonlocal times
            times += 1
            if times < 3:
                raise ValueError("an answer that nobody understands")
            renewed.set()

        background.keep(renew)
        async with asyncio.timeout(30):
            await renewed.wait()
        await background.cancel()
        return times

    assert asyncio.run(begun()) == 3


def test_background_work_is_cancelled_when_the_master_ends() -> None:
    async def left() -> bool:
        background = Background()
        ended = False

        async def renew() -> None:
            nonlocal ended
            try:
                await asyncio.Event().wait()
            finally:
                ended = True

        background.keep(renew)
        await asyncio.sleep(0)
        await background.cancel()
        return ended

    assert asyncio.run(left())
