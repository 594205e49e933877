"""Clients whose password a provider gives: it expires, and changes under them."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

import rota
from rota.errors import Unavailable
from support.servers import Server, server_binaries
from support.waiting import until

USER = "shop"


class Vault:
    """A server whose user has one password at a time, and what gives it out. `lifetime`: seconds, None for no end."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.admin = redis.Redis.from_url(server.url)
        self.lifetime: float | None = None
        self.asked = 0
        self.given = self.password = ""
        self.change("first")

    def change(self, password: str, *, known: bool = True) -> None:
        """Give the user another password, and end its connections. `known`: it is what is given out from now on."""
        self.password = password
        self.given = password if known else self.given
        self._do("ACL", "SETUSER", USER, "on", "resetpass", f">{password}", "~*", "&*", "+@all")
        self._do("CLIENT", "KILL", "USER", USER)

    def connections(self) -> set[str]:
        """The numbers of the user's connections."""
        return {each["id"] for each in self.admin.client_list() if each["user"] == USER}

    def _do(self, *command: str) -> None:
        self.admin.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py does not type it

    def get_credentials(self) -> tuple[object, ...]:
        """As a provider of redis-py."""
        return self.login()

    def login(self) -> tuple[object, ...]:
        """As a function."""
        self.asked += 1
        return USER, self.given, None if self.lifetime is None else time.time() + self.lifetime


@pytest.fixture(name="vault", params=server_binaries())
def _vault(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Vault]:
    server = Server(server_binaries()[request.param], tmp_path).start()
    vault = Vault(server)
    yield vault
    vault.admin.close()
    server.stop()


def test_a_client_shows_what_the_provider_gives_and_asks_it_once(vault: Vault, namespace: str) -> None:
    with rota.Client(vault.server.url, namespace, redis_credentials=vault.login) as client:
        ids = {client.enqueue("work", queue="q").id for _ in range(3)}
        assert len(client.peek("q")) == len(ids) == 3
    assert vault.asked == 1


def test_a_password_that_changes_is_asked_for_again_and_no_call_fails(vault: Vault, namespace: str) -> None:
    with rota.Client(vault.server.url, namespace, redis_credentials=vault) as client:
        client.enqueue("work", queue="q")
        vault.change("second")
        assert not client.enqueue("work", queue="q", id="after").duplicate
    assert vault.asked == 2


def test_a_refused_password_of_a_provider_that_has_no_other_is_told_with_its_setting(
    vault: Vault, namespace: str
) -> None:
    vault.change("second", known=False)
    client = rota.Client(vault.server.url, namespace, redis_credentials=vault.login)
    with client, pytest.raises(Unavailable, match=r"WRONGPASS.*check user, password .* in redis_credentials"):
        client.enqueue("work", queue="q")
    assert vault.asked == 1


def test_a_provider_that_fails_makes_the_server_unavailable_until_it_works(vault: Vault, namespace: str) -> None:
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
        until(lambda: client.peek("q") and vault.asked > 1, "a password that was asked for ahead of its end")
        until(lambda: client.peek("q") and not first & vault.connections(), "another connection")


def test_a_client_of_asyncio_does_the_same_and_holds_its_loop_up_for_no_provider(vault: Vault, namespace: str) -> None:
    turns: list[int] = []

    def slow() -> tuple[object, ...]:
        before = len(turns)
        until(lambda: len(turns) > before + 3, "the loop to go on meanwhile")
        return vault.login()

    async def count() -> None:
        while True:
            turns.append(0)
            await asyncio.sleep(0.001)

    async def enqueue_exactly(client: rota.AsyncClient) -> None:
        try:
            await client.enqueue("work", queue="q")
        except rota.Uncertain as doubt:  # it was sent before the loop saw the connection end
            await doubt.arepeat()

    async def use() -> None:
        counting = asyncio.create_task(count())
        async with rota.AsyncClient(vault.server.url, namespace, redis_credentials=slow) as client:
            handle = await client.enqueue("work", queue="q")
            assert (await handle.status()).state == "ready"
            vault.change("second")
            await enqueue_exactly(client)
            vault.lifetime = 0.3
            vault.change("third")
            await enqueue_exactly(client)
            asked = vault.asked
            while vault.asked == asked:  # its connection is replaced
                await client.peek("q")
        counting.cancel()

    asyncio.run(asyncio.wait_for(use(), 30))
    assert vault.asked >= 3
