"""AsyncClient has the same methods and parameters as Client."""

import inspect

import rota

OF_ONE_ALONE = {"close", "aclose", "close_soon"}


def public(client: type) -> dict[str, list[str]]:
    members = {name: getattr(client, name) for name in dir(client) if name[0] != "_" and hasattr(client, name)}
    return {
        name: [each for each in inspect.signature(member).parameters if each != "on_commit"] if callable(member) else []
        for name, member in members.items()
        if name not in OF_ONE_ALONE
    }


def test_the_asyncio_client_has_the_same_methods_as_the_blocking_client() -> None:
    assert public(rota.AsyncClient) == public(rota.Client)
