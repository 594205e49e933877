"""The support archive: a gzipped tar file with everything that is needed for remote help, without secrets."""

import contextlib
import io
import os
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rota_supervisor.doctor.scrubber import Scrubber
from rota_supervisor.exits import ExitCode, Failure

MODE: Final = 0o600  # the archive contains no known secrets, but it describes the system in detail
README: Final = """\
A support archive of Rota, written by `rota doctor --bundle`.

findings.json   what is wrong, what it means, and what to do
facts.json      the configuration of the machine, the process, the unit and the server that was examined
versions.json   Rota, Python, its packages, the kernel, the server
config.json     the configuration in force with the source of each value; secrets and arguments of tasks are ***
status.json     the state of the master on this node
page.json       the state of the node as its status page shows it
metrics.txt     the metrics of the node
nodes.json      the heartbeats of the fleet's nodes
audit.json      the counts of tasks
log.txt         the end of the log, if it is a file or in the journal
missing.json    what could not be collected, and why

Passwords, tokens and keys that are in the configuration, in the files that it names, or in the environment were
replaced by ***, and so was everything that looks like one. Names of queues and tasks, ids of tasks, texts of errors,
and lines that your own code logs are unchanged: read the archive before you send it.
"""


@dataclass(slots=True)
class Bundle:
    """The contents of a support archive: its files by name, and the parts that could not be collected."""

    scrubber: Scrubber
    texts: dict[str, str] = field(default_factory=lambda: {"README.txt": README})
    missing: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, values: Any) -> None:
        """Add values to the archive as a JSON document."""
        self.texts[name] = self.scrubber.document(values)

    def add_text(self, name: str, text: str) -> None:
        """Add a text, for example the metrics."""
        self.texts[name] = self.scrubber.text(text)

    def add_log(self, name: str, text: str) -> None:
        """Add the lines of a log."""
        self.texts[name] = self.scrubber.lines(text)

    def miss(self, name: str, why: str) -> None:
        """Record that a part could not be collected, and the reason."""
        self.missing[name] = self.scrubber.text(why)

    def write(self, path: Path) -> None:
        """Write the archive. Raises Failure with code 73 if the file already exists or cannot be created."""
        files = {**self.texts, "missing.json": self.scrubber.document(self.missing)}
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE)
        except FileExistsError:
            raise Failure(ExitCode.TAKEN, f"{path} already exists: nothing was written") from None
        except OSError as error:
            raise Failure(ExitCode.TAKEN, f"{path} cannot be written: {error.strerror}") from None
        try:
            with os.fdopen(fd, "wb") as file:
                _write(file, files)
        except OSError as error:
            with contextlib.suppress(OSError):
                path.unlink()
            raise Failure(ExitCode.OUTPUT, f"{path} cannot be written: {error.strerror}") from None


def _write(file: Any, files: Mapping[str, str]) -> None:
    now = int(time.time())
    folder = time.strftime("rota-doctor-%Y%m%d-%H%M%S", time.gmtime(now))
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, text in sorted(files.items()):
            content = text.encode("utf-8", "backslashreplace")
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size = len(content)
            entry.mtime = now
            entry.mode = MODE
            archive.addfile(entry, io.BytesIO(content))
