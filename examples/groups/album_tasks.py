"""The tasks of the album. Each appends a line to album.txt when it is done."""

import os

import rota


def _append(line: str) -> None:
    """Append a line with a single write, because several workers may write at the same time."""
    file = os.open("album.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


@rota.task(retries=3, time_limit=60)
def shrink(picture: str) -> None:
    """Shrink a picture. If the file is not a picture, the task becomes dead at once, because a retry cannot help."""
    if not picture.endswith(".png"):
        raise rota.Dead(f"{picture} is not a picture")
    _append(f"shrunk {picture}")


@rota.task(retries=3, time_limit=60)
def publish(album: str) -> None:
    """Publish an album whose pictures have all been shrunk."""
    _append(f"published {album}")


@rota.task(retries=3, time_limit=60)
def invite(album: str) -> None:
    """Invite friends to an album that has been published."""
    _append(f"invited to {album}")


@rota.task(retries=3, time_limit=60)
def complain(album: str) -> None:
    """Notify the owner that a file in an album is not a picture."""
    _append(f"a file in {album} is not a picture")
