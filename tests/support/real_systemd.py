"""A real systemd, which runs as process 1 in new namespaces. It uses a copy of this machine's files, which is deleted
at the end.

It needs root, overlayfs, and a machine whose own process 1 is not systemd, such as a container. Otherwise both systemds
would use the same tree of control groups.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
import pytest

from support.waiting import until

SYSTEMD: Final = Path("/usr/lib/systemd/systemd")
USER_ID: Final = 64100
# Units that would change kernel settings or mount file systems, and slow units that no fleet needs.
MASKED: Final = (
    "systemd-sysctl.service",
    "systemd-modules-load.service",
    "systemd-binfmt.service",
    "proc-sys-fs-binfmt_misc.automount",
    "systemd-remount-fs.service",
    "systemd-journal-flush.service",
    "dev-hugepages.mount",
    "dev-mqueue.mount",
    "sys-kernel-debug.mount",
    "sys-kernel-config.mount",
    "sys-kernel-tracing.mount",
    "sys-fs-fuse-connections.mount",
    "kmod-static-nodes.service",
    "systemd-tmpfiles-setup.service",
    "systemd-tmpfiles-setup-dev.service",
    "systemd-tmpfiles-clean.timer",
    "systemd-sysusers.service",
    "systemd-update-utmp.service",
)
_BOOT: Final = r"""
set -e
top=$1 project=$2 venv=$3
mkdir -p "$top/copy" "$top/root"
mount -t tmpfs tmpfs "$top/copy"
mkdir "$top/copy/upper" "$top/copy/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$top/copy/upper,workdir=$top/copy/work" "$top/root"
cd "$top/root"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs tmpfs run
mkdir -p ".$project"
mount --bind "$project" ".$project"
chmod a+x root
folder=$(dirname "$project")
while [ "$folder" != / ]; do chmod a+x ".$folder"; folder=$(dirname "$folder"); done
rm -rf etc/systemd/system srv/rota etc/rota opt/rota
mkdir -p etc/systemd/system opt
for unit in $4; do ln -s /dev/null "etc/systemd/system/$unit"; done
for file in "$top/files/units"/*; do cp -r "$file" etc/systemd/system/; done
cp -r "$top/files/srv" srv/rota
cp -r "$top/files/etc" etc/rota
ln -s "$venv" opt/rota
echo "rota:x:$5:$5::/srv/rota:/bin/sh" >> etc/passwd
echo "rota:x:$5:" >> etc/group
ip link set lo up
exec env container=lxc chroot . /usr/lib/systemd/systemd --system --unit=basic.target --show-status=0
"""


class RealSystemd:
    """A running systemd. Commands run inside its namespaces."""

    def __init__(self, pid: int, root: Path) -> None:
        self._enter = ["nsenter", "-t", str(pid), "-p", "-m", "-n", "-u", "-i", "chroot", str(root)]

    def run(self, *command: str, user: int = 0, group: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a command as this user, without supplementary groups, until it ends."""
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", f"--groups={group}"] if user else []
        return subprocess.run(
            [*self._enter, *become, *command], capture_output=True, text=True, timeout=60, check=False, env=_ENVIRONMENT
        )

    def shows(self, unit: str, *names: str) -> dict[str, str]:
        """Return these properties of a unit, by name."""
        shown = self.run("systemctl", "show", unit, *(f"--property={name}" for name in names)).stdout
        return dict(line.split("=", 1) for line in shown.splitlines())

    def journal(self, unit: str) -> str:
        """Return the log of a unit."""
        return self.run("journalctl", "--no-pager", "--output=cat", f"--unit={unit}").stdout


_ENVIRONMENT: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


@contextmanager
def real_systemd(top: Path, project: Path) -> Iterator[RealSystemd]:
    """Run a systemd during the block. Skip the test if systemd cannot run on this machine.

    `top/files` has three folders: `units`, `srv` (for /srv/rota) and `etc` (for /etc/rota).
    """
    if os.geteuid() or not SYSTEMD.exists() or Path("/run/systemd/system").exists():
        pytest.skip("needs root, systemd, and a machine that systemd does not run on")
    before = _control_groups()
    space = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--uts", "--ipc", "--net", "--mount-proc"]
    boot = ["bash", "-c", _BOOT, "boot", str(top), str(project), sys.prefix, " ".join(MASKED), str(USER_ID)]
    with (top / "boot.log").open("wb") as log:
        started = subprocess.Popen([*space, *boot], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=_ENVIRONMENT)
    try:
        yield _booted(started, top)
    finally:
        for child in psutil.Process(started.pid).children() if started.poll() is None else ():
            child.kill()
        started.wait()
        for group in sorted(_control_groups() - before, reverse=True):  # subgroups first
            group.rmdir()


def _control_groups() -> set[Path]:
    """Return the control groups of this machine with names that systemd uses."""
    groups = (path.parent for path in Path("/sys/fs/cgroup").rglob("cgroup.procs"))
    return {group for group in groups if any(part.endswith((".slice", ".scope", ".mount")) for part in group.parts)}


def _booted(started: subprocess.Popen[bytes], top: Path) -> RealSystemd:
    def found() -> RealSystemd | None:
        if started.poll() is not None:
            pytest.fail(f"systemd did not start: {(top / 'boot.log').read_text()}")
        for child in psutil.Process(started.pid).children():
            systemd = RealSystemd(child.pid, top / "root")
            if systemd.run("systemctl", "is-system-running").stdout.strip() in ("running", "degraded"):
                return systemd
        return None

    systemd = until(found, "systemd has started")
    assert systemd is not None
    return systemd
