"""What Linux offers a process for its place in the family, through ctypes: Python has no names for it."""

import ctypes
import mmap
import os
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
# Found once, so that the workers share what the zygote found: looked up by each it takes 0.2 MB of its own.
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.prctl.argtypes = (ctypes.c_int, *(ctypes.c_ulong,) * 4)
_LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
_LIBC.mmap.restype = ctypes.c_void_p
_PROT_NONE: Final = 0
# What signalling a process raises that is gone, or another user's by now, as what sudo runs, and not ours to end.
UNREACHABLE: Final = (ProcessLookupError, PermissionError)


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}, {value}): {os.strerror(code)}")


def become_subreaper() -> None:
    """Become the parent of descendants whose own parent is gone. Raises OSError."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> bool:
    """Have SIGKILL sent to this process when its parent dies; False when `parent` is no more the parent."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


def outlive_parent() -> None:
    """Undo `die_with_parent`."""
    _prctl(_PR_SET_PDEATHSIG, 0)


def keep_mapped(fd: int) -> None:
    """Map a page of a file for good, without access to it: a trace that all copies of this process have as well,
    whatever they close, until they start another program. It takes no memory, and not even a descriptor."""
    _LIBC.mmap(None, mmap.PAGESIZE, _PROT_NONE, mmap.MAP_SHARED, fd, 0)
