"""Sidekiq, with workers and a producer in Ruby. Debian has a package, but `make bench` does not install it."""

import dataclasses
import json
import shutil
import subprocess
from dataclasses import dataclass

from benchmarks.contender import ROOT, UNSCHEDULED, Contender, Plain

SCRIPTS = ROOT / "benchmarks" / "peers" / "ruby"
# By default, YJIT in Ruby 3.1 reserves 256 MB of memory for its code. The other option disables the warning that the
# shared memory of the standard library is experimental.
OPTIONS = "--yjit --yjit-exec-mem-size=16 -W:no-experimental"
EXTRA = {"RUBYOPT": OPTIONS, "MALLOC_ARENA_MAX": "2"}  # Sidekiq recommends two malloc arenas to save memory
_INSTALLED = """
require "hiredis"; require "redis"; require "sidekiq"
print({sidekiq: Sidekiq::VERSION, redis: Redis::VERSION, hiredis: Hiredis::VERSION, ruby: RUBY_VERSION}.to_json)
"""


@dataclass(frozen=True)
class OnRuby(Plain):
    """A contender whose `app` is a file that Ruby loads."""

    copies: bool = True
    at_least_once: bool = False

    def producer(self) -> list[str]:
        """Return the command of a producer that reads the same requests as `benchmarks.drive`."""
        return ["ruby", str(SCRIPTS / "drive.rb"), self.app]

    def versions(self) -> dict[str, str]:
        """Return the versions that Ruby reports, or an empty dict if YJIT or a required package is missing."""
        ruby = shutil.which("ruby")
        if ruby is None:
            return {}
        request = subprocess.run(
            [ruby, *OPTIONS.split(), "-rjson", "-e", _INSTALLED], capture_output=True, text=True, check=False
        )
        found: dict[str, str] = json.loads(request.stdout) if request.returncode == 0 else {}
        return found


def _worker(threads: int) -> list[list[str]]:
    return [["sidekiq", "-q", "bench", "-c", str(threads), "-r", str(SCRIPTS / "sidekiq_app.rb")]]


SIDEKIQ = OnRuby(
    name="sidekiq",
    measures=UNSCHEDULED - {"load"},  # only the Python producer can enqueue at random times
    app=str(SCRIPTS / "sidekiq_app.rb"),
    argv=_worker(1),
    settings=(
        "on Ruby with YJIT (in 16 MB) and hiredis, one process with one thread for each worker, 3 retries. A task of a "
        "killed worker is lost"
    ),
    extra=EXTRA,
)
SIDEKIQ_AT_ONCE = dataclasses.replace(
    SIDEKIQ,
    name="sidekiq-c10",
    argv=_worker(10),
    settings="as sidekiq, 10 threads in each process, which checks for due jobs every 50 ms instead of 5 s",
    measures=frozenset({"drain", "lag", "burst", "idle"}),
    extra=EXTRA | {"BENCH_POLL_SECONDS": "0.05"},
)
RUBY_PEERS: tuple[Contender, ...] = (SIDEKIQ, SIDEKIQ_AT_ONCE)
