"""Two albums and an archive: python album.py [PICTURES OF THE ARCHIVE]."""

import sys
from collections.abc import Iterable, Iterator

import rota
from album_tasks import complain, invite, publish, shrink


def upload(album: str, pictures: Iterable[str]) -> rota.GroupHandle:
    """Have all pictures made small, in any order; then the album published, and after that its friends invited. If one
    of them is dead, have the owner told instead."""
    members = [shrink.call(f"{album}/{picture}") for picture in pictures]
    following = rota.chain(publish.call(album), invite.call(album))
    return rota.group(members, then=following, on_dead=complain.call(album)).enqueue()


def archive(name: str, pictures: Iterator[str]) -> rota.GroupHandle:
    """Have any number of pictures made small, at most 200 of them waiting at a time. Begun again after it was cut short
    it goes on where it was, as the group has that name."""
    return rota.map(shrink, pictures, max_waiting=200, id=name, then=publish.call(name))


def main() -> None:
    """Upload, and wait until all is done."""
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
