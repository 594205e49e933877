"""The album's own tests, which start a fleet and a server. Run them in this folder with `python -m pytest`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import rota
from album import archive, upload

pytestmark = pytest.mark.usefixtures("rota_fleet")


@pytest.fixture(autouse=True)
def _no_lines() -> Iterator[None]:
    Path("album.txt").unlink(missing_ok=True)
    yield
    Path("album.txt").unlink(missing_ok=True)


def lines() -> list[str]:
    return Path("album.txt").read_text().splitlines()


def test_an_album_is_published_after_all_pictures_are_shrunk() -> None:
    ended = upload("summer", ["sea.png", "sand.png"]).wait(30)
    rota.default_client().wait(ended.followed_by, 30)
    assert (ended.done, set(lines()[:2])) == (2, {"shrunk summer/sea.png", "shrunk summer/sand.png"})
    assert lines()[2] == "published summer"


def test_the_owner_is_notified_of_a_file_that_is_not_a_picture() -> None:
    ended = upload("winter", ["snow.png", "readme.txt"]).wait(30)
    rota.default_client().wait(ended.followed_by, 30)
    assert (ended.done, ended.dead) == (1, 1)
    assert lines() == ["shrunk winter/snow.png", "a file in winter is not a picture"]


def test_an_archive_of_any_size_is_finally_published() -> None:
    ended = archive("archive", (f"{number}.png" for number in range(500))).wait(30)
    rota.default_client().wait(ended.followed_by, 30)
    assert (ended.done, lines()[-1]) == (500, "published archive")
