"""The container image, which buildah builds and podman runs. The image store is removed at the end.

No registry is needed, because the base image is built from Debian's packages (`make image`). Containers share the
network of this machine. They are in no control group, because a machine that is itself a container may not create one.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

TOP: Final = Path(__file__).resolve().parents[2]
DOCKER: Final = TOP / "deploy" / "docker"
BASE: Final = TOP / "build" / "image" / "base.tar"  # the files of the base image, which `make image` creates
IMAGE: Final = "localhost/rota"
COMMAND_SECONDS: Final = 120.0
BUILD_SECONDS: Final = 600.0
_PYTHON: Final = "localhost/python"
_CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"
_PIP_SETTINGS: Final = ("index-url", "extra-index-url", "trusted-host")
# The storage driver `vfs` needs no support from the kernel. It copies the image for each container.
_STORAGE: Final = os.environ.get("STORAGE_DRIVER", "overlay")
# crun refuses to run on a machine with both versions of control groups, unless version 2 is hidden from it.
_SECOND_CGROUPS: Final = Path("/sys/fs/cgroup/unified")
_OUT_OF_SIGHT: Final = ("unshare", "--mount", "sh", "-c", f'umount {_SECOND_CGROUPS} && exec "$@"', "sh")


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """The limits of a container with a read-only root."""

    writable: str = "/tmp:size=64m"  # the only writable folder, or "" for none
    shared: str = "64m"  # the size of /dev/shm
    files: int = 256  # the maximum number of open file descriptors

    def options(self) -> list[str]:
        """Return the podman options for an unprivileged container with these limits."""
        return [
            *("--read-only", "--read-only-tmpfs=false", "--shm-size", self.shared),
            *(("--tmpfs", self.writable) if self.writable else ()),
            # podman's default limit on the number of processes may be higher than this machine permits.
            *("--ulimit", f"nofile={self.files}:{self.files}", "--ulimit", "nproc=4096:4096"),
            *("--cap-drop", "all", "--security-opt", "no-new-privileges"),
        ]


class Engine:
    """buildah and podman, which keep their images in the same folder."""

    def __init__(self, folder: Path) -> None:
        store = ["--root", str(folder / "store"), "--runroot", str(folder / "run"), "--storage-driver", _STORAGE]
        podman = ["podman", *store, "--tmpdir", str(folder / "tmp"), "--cgroup-manager", "cgroupfs"]
        self._buildah = ["buildah", *store]
        self._podman = [*(_OUT_OF_SIGHT if _SECOND_CGROUPS.exists() else ()), *podman]
        self._folder = folder

    # The image

    def build(self, *extras: str) -> None:
        """Build the image of deploy/docker with these extras of the Python package."""
        self._make_base()
        self._run_buildah(
            *("build", "--isolation", "chroot", "--network", "host", "--format", "docker", "--tag", IMAGE),
            *("--build-arg", f"PYTHON_IMAGE={_PYTHON}", "--build-arg", f"EXTRAS={','.join(extras)}"),
            *("--ignorefile", DOCKER / "Dockerfile.dockerignore", "--file", DOCKER / "Dockerfile", TOP),
        )

    def _make_base(self) -> None:
        """Build the base image, which trusts this machine's certificates and uses its package index."""
        settings = self._folder / "pip.conf"
        settings.write_text(pip_settings())
        container = self._run_buildah("from", "scratch").strip()
        self._run_buildah("add", container, BASE, "/")
        self._run_buildah("copy", container, settings, "/etc/pip.conf")
        self._run_buildah("copy", container, _CERTIFICATES, _CERTIFICATES)
        self._run_buildah("commit", "--rm", container, _PYTHON)

    def _run_buildah(self, *arguments: str | Path) -> str:
        command = [*self._buildah, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def image(self) -> dict[str, Any]:
        """Return the description of the image from `podman inspect`."""
        (described,) = json.loads(self.podman("inspect", IMAGE).stdout)
        found: dict[str, Any] = described
        return found

    # Containers

    def podman(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run podman and wait until it has ended."""
        return subprocess.run(
            [*self._podman, *arguments],
            env={**os.environ, "DISABLE_HC_SYSTEMD": "true"},  # a health check runs only when the test starts it
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )

    def run(self, limits: ContainerLimits, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        """Run a container until it exits. `arguments` are passed to its entry point, and `options` to podman."""
        more = [f"--{name}={value}" for name, value in options.items()]
        return self.podman("run", "--rm", *_COMMON, *limits.options(), *more, IMAGE, *arguments)

    @contextmanager
    def started(self, name: str, code: Path, environment: Mapping[str, str]) -> Iterator[None]:
        """Run `rota run` in a container of this name during the block. The container can read the application's code in
        the folder `code`.
        """
        variables = [f"--env={key}={value}" for key, value in environment.items()]
        mounted = ["--volume", f"{code}:/srv/app:ro"]
        begun = self.podman(
            "run", "--detach", "--name", name, *_COMMON, *ContainerLimits().options(), *variables, *mounted, IMAGE
        )
        try:
            assert begun.returncode == 0, begun.stderr
            yield
        finally:
            self.podman("rm", "--force", "--time", "0", name)


_COMMON: Final = ("--network", "host", "--cgroups", "disabled")


def pip_settings() -> str:
    """Return a pip.conf with the package index that pip uses on this machine."""
    lines = ["[global]", f"cert = {_CERTIFICATES}"]
    for name in _PIP_SETTINGS:
        command = [sys.executable, "-m", "pip", "config", "get", f"global.{name}"]
        words = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
        # Settings that name local folders are left out, because the image does not have these folders.
        if usable := [word for word in words if not word.startswith("file:")]:
            lines.append(f"{name} = {' '.join(usable)}")
    return "\n".join(lines) + "\n"


@contextmanager
def engine_in(folder: Path) -> Iterator[Engine]:
    """Yield an engine with its store in a folder, which is removed at the end."""
    missing = [program for program in ("buildah", "podman") if shutil.which(program) is None]
    if os.geteuid() or missing or not BASE.exists():
        pytest.skip("needs root, buildah, podman, and the base image that `make image` makes")
    try:
        yield Engine(folder)
    finally:
        shutil.rmtree(folder)
