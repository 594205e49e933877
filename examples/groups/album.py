"""Upload two albums and an archive of pictures.

Usage: python album.py [NUMBER OF PICTURES IN THE ARCHIVE]
"""

import sys
from collections.abc import Iterable, Iterator

import rota
from album_tasks import complain, invite, publish, shrink


def upload(album: str, pictures: Iterable[str]) -> rota.GroupHandle:
    """Enqueue a task for each picture. When all pictures have been shrunk, the album is published, and then friends are
    invited. If one of the tasks becomes dead, the owner is notified instead.
    """
    members = [shrink.call(f"{album}/{picture}") for picture in pictures]
    following = rota.chain(publish.call(album), invite.call(album))
    return rota.group(members, then=following, on_dead=complain.call(album)).enqueue()


def archive(name: str, pictures: Iterator[str]) -> rota.GroupHandle:
    """Enqueue a task for each picture. There may be any number of pictures, but at most 200 tasks wait at a time. If
    the program is interrupted, the next call with the same name continues the group.
    """
    return rota.map(shrink, pictures, max_waiting=200, id=name, then=publish.call(name))


def main() -> None:
    """Upload two albums and an archive, and wait until their groups have ended."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    groups = [
        upload("summer", ["sea.png", "sand.png", "sun.png"]),
        upload("winter", ["snow.png", "readme.txt"]),
        archive(f"archive-{count}", (f"{number}.png" for number in range(count))),
    ]
    for group in groups:
        ended = group.wait(timeout=60)
        print(f"{group.id}: {ended.done} done, {ended.dead} dead, followed by task {ended.followed_by}")


if __name__ == "__main__":
    main()
