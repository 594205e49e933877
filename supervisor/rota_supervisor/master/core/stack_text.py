"""What faulthandler writes about a process, made fit for a line of the log and for an epitaph. Pure."""

import re
from pathlib import Path
from typing import Final, NamedTuple

import rota
import rota_supervisor
from rota_supervisor.layout import LAST_WORDS

_FATAL: Final = "Fatal Python error:"
_THREAD: Final = re.compile(r"^((?P<current>Current thread|Thread) 0x[0-9a-f]+ .*|Stack )\(most recent call first\):$")
_FRAME: Final = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<name>.*)$')
_OWN: Final = tuple(str(Path(package.__file__ or "").parent) for package in (rota, rota_supervisor))
_IMPORTER: Final = "<frozen"  # the interpreter's own: between two modules, and below everything
_BETWEEN: Final = " < "


class _Frame(NamedTuple):
    file: str
    text: str


def of_fatal_error(text: str) -> str:
    """The part that a fatal error wrote; "" when there was none."""
    at = text.rfind(_FATAL)
    return text[at:] if at >= 0 else ""


def last_words(text: str) -> str:
    """What a process that left by itself gave as its reason; "" for none."""
    _, mark, said = text.rpartition(LAST_WORDS)
    return said.partition("\n")[0] if mark else ""


def shortened(text: str, most: int) -> str:
    """The calls of each thread in a line, the innermost first, in at most so many characters; "" when there are none.

    The thread of a fatal error comes first, else the main thread, which started before all others. What is Rota's
    own at the outer end is left out, and what is cut is counted.
    """
    threads = _in_order(text)
    if not threads:
        return ""
    more = f" (other threads: {len(threads) - 1})" if len(threads) > 1 else ""
    return _joined(_theirs(threads[0]), most - len(more)) + more


def _in_order(text: str) -> list[list[_Frame]]:
    """The threads, of which faulthandler writes the latest first."""
    threads: list[list[_Frame]] = []
    current = -1
    for line in text.splitlines():
        if head := _THREAD.match(line):
            current = len(threads) if head["current"] != "Thread" else current
            threads.append([])
        elif threads and (frame := _FRAME.match(line)):
            threads[-1].append(_Frame(frame["file"], f"{frame['name']} ({frame['file']}:{frame['line']})"))
    failed = [threads.pop(current)] if _FATAL in text and current >= 0 else []
    return [frames for frames in [*failed, *reversed(threads)] if frames]


def _theirs(frames: list[_Frame]) -> list[_Frame]:
    frames = [frame for frame in frames if not frame.file.startswith(_IMPORTER)] or frames
    outermost = next((at for at in range(len(frames), 0, -1) if not frames[at - 1].file.startswith(_OWN)), 0)
    return frames[:outermost] or frames


def _joined(frames: list[_Frame], most: int) -> str:
    """As many as fit, of the innermost at least a part."""
    texts = [frame.text for frame in frames]
    for kept in range(len(texts), 0, -1):
        end = f"{_BETWEEN}... {len(texts) - kept} more" if kept < len(texts) else ""
        line = _BETWEEN.join(texts[:kept]) + end
        if len(line) <= most:
            return line
    return texts[0][: max(0, most - 3)] + "..."
