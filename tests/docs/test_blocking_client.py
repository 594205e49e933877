"""The blocking client is generated from the asyncio client and has no manual changes."""

import pytest

from support.blocking_client import MODULES, blocking, target_of


@pytest.mark.parametrize("module", MODULES)
def test_blocking_client_is_generated_from_the_async_one(module: str) -> None:
    assert target_of(module).read_text(encoding="utf-8") == blocking(module), "run `make blocking`, which writes it"


@pytest.mark.parametrize("module", MODULES)
def test_blocking_client_contains_no_asyncio(module: str) -> None:
    text = target_of(module).read_text(encoding="utf-8")
    assert text.startswith("# Generated from ")
    assert [word for word in ("async", "await", "Async", ".aio") if word in text] == []
