"""The tasks of the album. What they do is to append a line to album.txt, in the order in which they are done."""

import os

import rota


def _tell(line: str) -> None:
    """In one write, as several workers do so at once."""
    file = os.open("album.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


@rota.task(retries=3, time_limit=60)
def shrink(picture: str) -> None:
    """Make a picture small; what is no picture never will be one."""
    if not picture.endswith(".png"):
        raise rota.Dead(f"{picture} is no picture")
    _tell(f"shrunk {picture}")


@rota.task(retries=3, time_limit=60)
def publish(album: str) -> None:
    """Show an album whose pictures are all small."""
    _tell(f"published {album}")


@rota.task(retries=3, time_limit=60)
def invite(album: str) -> None:
    """Write to those who may see an album, once it is there."""
    _tell(f"invited to {album}")


@rota.task(retries=3, time_limit=60)
def complain(album: str) -> None:
    """Tell the owner that something in an album is no picture."""
    _tell(f"something in {album} is no picture")
