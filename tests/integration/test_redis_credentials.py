"""Clients whose Redis password comes from a provider. The password expires, and it changes while the clients run."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import rota
from rota.errors import Unavailable
from support.servers import Server, server_binaries
from support.vault import Vault
from support.waiting import until


@pytest.fixture(name="vault", params=server_binaries())
def _vault(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Vault]:
    server = Server(server_binaries()[request.param], tmp_path).start()
    vault = Vault(server)
    yield vault
    vault.admin.close()
    server.stop()


def test_a_client_fetches_the_provider_credentials_once(vault: Vault, namespace: str) -> None:
    with rota.Client(vault.server.url, namespace, redis_credentials=vault.login) as client:
        ids = {client.enqueue("work", queue="q").id for _ in range(3)}
        assert len(client.peek("q")) == len(ids) == 3
    assert vault.asked == 1


def test_a_client_fetches_a_changed_password_and_no_call_fails(vault: Vault, namespace: str) -> None:
    with rota.Client(vault.server.url, namespace, redis_credentials=vault) as client:
        client.enqueue("work", queue="q")
        vault.change("quince-2")
        assert not client.enqueue("work", queue="q", id="after").duplicate
    assert vault.asked == 2


def test_the_error_about_a_providers_refused_password_names_the_setting(vault: Vault, namespace: str) -> None:
    vault.change("quince-2", known=False)
    client = rota.Client(vault.server.url, namespace, redis_credentials=vault.login)
    with client, pytest.raises(Unavailable, match=r"WRONGPASS.*check the user and the password in redis_credentials"):
        client.enqueue("work", queue="q")
    assert vault.asked == 1


def test_a_failing_provider_raises_unavailable_until_it_works(vault: Vault, namespace: str) -> None:
    def login() -> tuple[object, ...]:
        if vault.asked == 0:
            vault.asked += 1
            raise ConnectionError("the vault is sealed")
        return vault.login()

    with rota.Client(vault.server.url, namespace, redis_credentials=login) as client:
        with pytest.raises(Unavailable, match="the provider failed: ConnectionError: the vault is sealed"):
            client.enqueue("work", queue="q")
        client.enqueue("work", queue="q")


def test_connections_are_replaced_before_their_password_expires(vault: Vault, namespace: str) -> None:
    vault.lifetime = 0.5
    with rota.Client(vault.server.url, namespace, redis_credentials=vault.login) as client:
        client.enqueue("work", queue="q")
        first = vault.connections()
        until(lambda: client.peek("q") and vault.asked > 1, "the password was requested before it expired")
        until(lambda: client.peek("q") and not first & vault.connections(), "another connection")


def test_the_asyncio_client_is_not_blocked_by_a_slow_provider(vault: Vault, namespace: str) -> None:
    turns: list[int] = []

    def slow() -> tuple[object, ...]:
        before = len(turns)
        until(lambda: len(turns) > before + 3, "the loop continues in the meantime")
        return vault.login()

    async def count() -> None:
        while True:
            turns.append(0)
            await asyncio.sleep(0.001)

    async def enqueue_exactly(client: rota.AsyncClient) -> None:
        try:
            await client.enqueue("work", queue="q")
        except rota.Uncertain as doubt:
            # The call was sent on the closed connection, because the event loop had not yet noticed that it was closed.
            await doubt.arepeat()

    async def use() -> None:
        counting = asyncio.create_task(count())
        async with rota.AsyncClient(vault.server.url, namespace, redis_credentials=slow) as client:
            handle = await client.enqueue("work", queue="q")
            assert (await handle.status()).state == "ready"
            vault.change("quince-2")
            await enqueue_exactly(client)
            vault.lifetime = 0.3
            vault.change("quince-3")
            await enqueue_exactly(client)
            asked = vault.asked
            # Repeat until the client has opened a new connection, because it calls the provider for each new
            # connection.
            while vault.asked == asked:
                await client.peek("q")
        counting.cancel()

    asyncio.run(asyncio.wait_for(use(), 30))
    assert vault.asked >= 3
