"""A pod of the chart that runs without Kubernetes. Its container is started from the rendered spec, as a kubelet would
do it.

The container is process 1 of new namespaces with a read-only root. It has the user, the volumes, the environment and
the arguments of the spec. It differs from a real container in three ways: its root has the files of this machine
instead of an image, it uses this machine's network, and there is no cgroup with its limits.
"""

import os
import shlex
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from chart.kube import TOP, Object, only
from support.growing_files import logged
from support.waiting import until

Secrets = Mapping[str, Mapping[str, str]]  # the content of each Secret, by the name of the Secret and then by key

PROGRAM: Final = str(Path(sys.executable).with_name("rota"))  # the entry point of the image
CODE: Final = "/srv/app"  # the working directory of the image
HOST_NAME: Final = "rota-6d5f9c8b7-x2x4z"
EXIT_SECONDS: Final = 60.0
_SHARED: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib64", sys.base_prefix)
_DEVICES: Final = ("null", "zero", "random", "urandom")
_NAMESPACES: Final = ("unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child")


class PodProcess:
    """A pod made from rendered objects. `pod` is the spec of the pod. `tasks` is the content of the module `tasks` in
    the image.
    """

    def __init__(self, objects: list[Object], pod: Object, folder: Path, secrets: Secrets, tasks: str) -> None:
        self.pod = pod
        (self.container,) = pod["containers"]
        self.folder = folder
        self._objects = objects
        self._secrets = secrets
        self._revision = 0
        self.process: subprocess.Popen[bytes] | None = None
        (folder / "app").mkdir()
        (folder / "app" / "tasks.py").write_text(tasks)

    # Volumes

    def _volume(self, name: str) -> Object:
        (found,) = (each for each in self.pod["volumes"] if each["name"] == name)
        assert isinstance(found, dict)
        return found

    def _files(self, volume: Object) -> dict[str, str]:
        """Return the files with which Kubernetes fills a volume."""
        if "configMap" in volume:
            found: dict[str, str] = only(self._objects, "ConfigMap", volume["configMap"]["name"])["data"]
            return found
        sources = [each["secret"] for each in volume["projected"]["sources"]]
        return {
            item["path"]: self._secrets[source["name"]][item["key"]] for source in sources for item in source["items"]
        }

    def write_volume(self, name: str, files: Mapping[str, str]) -> None:
        """Write the files of a volume as the kubelet does. It writes the files to a new folder, and then atomically
        switches a link to that folder.
        """
        volume, context = self._volume(name), self.pod["securityContext"]
        mode = volume.get("projected", {}).get("defaultMode", 0o644)
        top = self.folder / name
        self._revision += 1
        fresh = top / f"..{self._revision}"
        fresh.mkdir(parents=True)
        for file, text in files.items():
            (fresh / file).write_text(text)
            (fresh / file).chmod(mode)
            os.chown(fresh / file, 0, context["fsGroup"])
            with suppress(FileExistsError):
                (top / file).symlink_to(f"..data/{file}")
        (top / "..next").symlink_to(fresh.name)
        (top / "..next").replace(top / "..data")

    def update_configuration(self, text: str) -> None:
        """Update the files of the ConfigMap in the pod."""
        self.write_volume("config", {"rota.toml": text})

    # Life cycle

    def start(self) -> "PodProcess":
        """Start the container without waiting until it is ready."""
        for volume in self.pod["volumes"]:
            if "emptyDir" not in volume:
                self.write_volume(volume["name"], self._files(volume))
        script = self.folder / "start.sh"
        script.write_text("\n".join(["set -e", *self._mounts(), f"exec {shlex.join(self._command())}"]))
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*_NAMESPACES, "sh", str(script)],
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return self

    def environment(self) -> dict[str, str]:
        """Return the environment of the container, which combines the variables of the image with those of the spec."""
        return {"PATH": os.environ["PATH"], **{each["name"]: each["value"] for each in self.container["env"]}}

    def _mounts(self) -> Iterator[str]:
        """Yield the commands that build the root of the container."""
        root = self.folder / "root"
        root.mkdir()
        yield "mount --make-rprivate /"
        yield f"hostname {HOST_NAME}"
        yield f"mount -t tmpfs -o mode=0755 root {root}"
        for path in (each for each in _SHARED if Path(each).exists()):
            yield f"mkdir -p {root}{path} && mount --rbind {path} {root}{path}"
        yield f"mkdir -p {root}/proc {root}/dev/shm && mount -t proc proc {root}/proc"
        for device in _DEVICES:
            yield f"touch {root}/dev/{device} && mount --bind /dev/{device} {root}/dev/{device}"
        yield f"mkdir -p {root}{CODE} && mount --bind {self.folder / 'app'} {root}{CODE}"
        yield f"mount -t tmpfs -o size=64m,mode=1777 shm {root}/dev/shm"
        for mount in self.container["volumeMounts"]:
            yield from self._mount(self._volume(mount["name"]), f"{root}{mount['mountPath']}")
        # This must come last, because the folder may be inside a volume (/tmp).
        yield f"mkdir -p {root}{TOP} && mount --rbind {TOP} {root}{TOP}"
        if self.container["securityContext"]["readOnlyRootFilesystem"]:
            yield f"mount -o remount,ro,bind {root}{CODE} && mount -o remount,ro {root}"

    def _mount(self, volume: Object, at: str) -> Iterator[str]:
        yield f"mkdir -p {at}"
        if "emptyDir" in volume:
            size = volume["emptyDir"]["sizeLimit"].removesuffix("i").lower()
            group = self.pod["securityContext"]["fsGroup"]
            yield f"mount -t tmpfs -o size={size},mode=2777,gid={group} {volume['name']} {at}"
        else:
            yield f"mount --bind {self.folder / volume['name']} {at} && mount -o remount,ro,bind {at}"

    def _command(self) -> list[str]:
        return [
            "chroot",
            str(self.folder / "root"),
            "env",
            "-C",
            CODE,
            *self._as_user(),
            PROGRAM,
            *self.container["args"],
        ]

    def _as_user(self) -> list[str]:
        """Return a command prefix that sets the user and the privileges from the spec."""
        pod, own = self.pod["securityContext"], self.container["securityContext"]
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert own["allowPrivilegeEscalation"] is False
        user = [f"--reuid={pod['runAsUser']}", f"--regid={pod['runAsGroup']}", f"--groups={pod['fsGroup']}"]
        return ["setpriv", *user, "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", "--"]

    @property
    def master(self) -> psutil.Process:
        """The process that is process 1 in the container, with its pid on this machine."""
        assert self.process is not None
        (found,) = psutil.Process(self.process.pid).children()
        return found

    def exit_code(self) -> int:
        """Wait until the container has ended, and return its exit code."""
        assert self.process is not None
        return self.process.wait(EXIT_SECONDS)

    def end(self) -> None:
        """Kill all remaining processes."""
        if self.process is not None and self.process.poll() is None:
            # The option --kill-child of unshare cannot be used for this, because setpriv resets it.
            for child in psutil.Process(self.process.pid).children():
                child.kill()
            self.process.kill()
            self.process.wait()

    # Access from outside the container

    def exec(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `rota` in the container, as `kubectl exec` does."""
        enter = ["nsenter", "--target", str(self.master.pid), "--mount", "--pid", "--uts", "--root", "--wd"]
        command = [*enter, *self._as_user(), PROGRAM, *arguments]
        return subprocess.run(
            command, env=self.environment(), capture_output=True, text=True, timeout=EXIT_SECONDS, check=False
        )

    def get(self, path: str, scheme: str = "HTTP", seconds: float = 10, **headers: str) -> int:
        """Request a path from the container's port. Return the status of the response, or 0 if there is no response."""
        (port,) = (each["containerPort"] for each in self.container["ports"])
        unverified = ssl.create_default_context()
        unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
        asked = urllib.request.Request(f"{scheme.lower()}://127.0.0.1:{port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(asked, timeout=seconds, context=unverified) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as refused:
            return refused.code
        except OSError:
            return 0

    def probe(self, name: str) -> bool:
        """Whether this probe of the spec succeeds now."""
        probe: dict[str, Any] = self.container[f"{name}Probe"]
        asked = probe["httpGet"]
        assert asked["port"] in {each["name"] for each in self.container["ports"]}
        status = self.get(asked["path"], asked.get("scheme", "HTTP"), probe["timeoutSeconds"])
        return 200 <= status < 400

    def until_ready(self) -> "PodProcess":
        """Wait until the probes of the spec report that the pod has started and is ready."""
        until(lambda: self.probe("startup"), self.log_text)
        until(lambda: self.probe("readiness"), self.log_text)
        return self

    def log_text(self) -> str:
        """Return the log of the container."""
        return (self.folder / "log").read_text()

    def log(self, event: str) -> list[dict[str, Any]]:
        """Return the lines of the log that report this event."""
        return [line for line in logged(self.folder / "log") if line.get("event") == event]


def need_namespaces() -> None:
    """Skip a test if no namespaces can be created."""
    tried = shutil.which("unshare") and subprocess.run([*_NAMESPACES, "true"], capture_output=True, check=False)
    if os.geteuid() != 0 or not tried or tried.returncode:
        pytest.skip("no namespaces can be made here: that takes unshare, and root")
