"""How far a long enqueue is, told or drawn."""

import sys

import pytest

from rota.client.enqueue_options import telling


def test_a_callable_is_given_how_many_of_how_many() -> None:
    told: list[tuple[int, int | None]] = []
    for total in (3, None):
        with telling(lambda *now: told.append(now), total) as tell:
            tell(2)
    assert told == [(2, 3), (2, None)]


@pytest.mark.parametrize("progress", [None, False])
def test_without_it_nothing_is_drawn(progress: bool | None, capsys: pytest.CaptureFixture[str]) -> None:
    with telling(progress, 3) as tell:
        tell(3)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("total", "shown"), [(4_000_000, "2000000/4000000"), (None, "2000000/?")])
def test_a_bar_goes_to_standard_error(total: int | None, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    with telling(True, total) as tell:
        tell(2_000_000)
    told = capsys.readouterr()
    assert (told.out, shown in told.err) == ("", True)


def test_without_rich_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'rota\[progress\]', or give progress= a callable"):
        telling(True, 3).__enter__()
