"""A host name resolver that hangs while a file exists. It is a small library that is loaded before all others."""

import subprocess
from pathlib import Path
from typing import Final

import pytest

_FILE: Final = "HANGING_RESOLVER_FILE"
_SOURCE: Final = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <unistd.h>

typedef int lookup(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    const char *path = getenv("HANGING_RESOLVER_FILE");
    while (path && access(path, F_OK) == 0) usleep(10000);
    return ((lookup *)dlsym(RTLD_NEXT, "getaddrinfo"))(node, service, hints, found);
}
"""


class HangingResolver:
    """The resolver of all processes that are started with `environment`. It works until `hang` is called."""

    def __init__(self, folder: Path) -> None:
        source, library = folder / "resolver.c", folder / "resolver.so"
        source.write_text(_SOURCE)
        try:
            subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        except FileNotFoundError:
            pytest.skip("no gcc, so no resolver can be made to hang")
        self._file = folder / "resolver.hangs"
        self.environment = {"LD_PRELOAD": str(library), _FILE: str(self._file)}

    def hang(self) -> None:
        """Make every lookup in every process hang from now on."""
        self._file.touch()
