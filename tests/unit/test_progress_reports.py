"""The progress of a long enqueue, which is passed to a callback or drawn as a bar."""

import sys

import pytest

from rota.client.enqueue_options import progress_reporter


def test_a_progress_callable_receives_the_done_and_the_total_count() -> None:
    reported: list[tuple[int, int | None]] = []
    for total in (3, None):
        with progress_reporter(lambda *now: reported.append(now), total) as report:
            report(2)
    assert reported == [(2, 3), (2, None)]


@pytest.mark.parametrize("progress", [None, False])
def test_without_the_progress_option_nothing_is_drawn(
    progress: bool | None, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_reporter(progress, 3) as report:
        report(3)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("total", "shown"), [(4_000_000, "2000000/4000000"), (None, "2000000/?")])
def test_a_progress_bar_is_drawn_on_standard_error(
    total: int | None, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_reporter(True, total) as report:
        report(2_000_000)
    reported = capsys.readouterr()
    assert (reported.out, shown in reported.err) == ("", True)


def test_without_rich_the_error_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'rota\[progress\]', or pass progress= a callable"):
        progress_reporter(True, 3).__enter__()
