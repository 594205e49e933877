"""How far a long enqueue is, told to a callable or drawn in the terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tell = Callable[[int], object]
"""Takes how many were accepted so far."""
ProgressOption = Callable[[int, int | None], object] | bool | None
"""Takes how many were accepted so far, and of how many (None: not known); True draws a bar."""


@contextmanager
def telling(progress: ProgressOption, total: int | None) -> Iterator[Tell]:
    """Gives what is to be told how many were accepted. Raises TypeError, or ModuleNotFoundError without rich."""
    if progress is None or progress is False:
        yield lambda _done: None
    elif progress is True:
        with _bar(total) as tell:
            yield tell
    elif callable(progress):
        yield lambda done: progress(done, total)
    else:
        raise TypeError(f"progress must be True, or a callable that is given (done, total), got {progress!r}")


def tell_all(progress: ProgressOption, total: int) -> None:
    """Tell that all were accepted."""
    with telling(progress, total) as tell:
        tell(total)


@contextmanager
def _bar(total: int | None) -> Iterator[Tell]:
    try:
        from rich import progress as rich  # noqa: PLC0415 - an extra, for those who ask for a bar
        from rich.console import Console  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "progress=True draws a bar with rich, which is not installed: pip install 'rota[progress]', or give "
            "progress= a callable that is given (done, total)",
            name="rich",
        ) from error
    columns = rich.TextColumn("enqueued"), rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeRemainingColumn()
    with rich.Progress(*columns, console=Console(stderr=True)) as drawn:
        bar = drawn.add_task("", total=total)
        yield lambda done: drawn.update(bar, completed=done)
