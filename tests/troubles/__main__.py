"""Run a trouble so that you can inspect it: `make trouble NAME=saturation` runs until Ctrl-C."""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from troubles.bench import Bench
from troubles.catalogue import TROUBLES


def main() -> None:
    """Start the fleets, begin the trouble, print the addresses to open, and wait for Ctrl-C."""
    name = _arguments().name
    with tempfile.TemporaryDirectory(prefix="rota-trouble-") as folder, Bench(Path(folder), [name]) as bench:
        fleet = bench.scenes[name].fleet
        sys.stdout.write(f"a fleet that is well: http://{fleet.target()}/\n")
        bench.begin(name)
        sys.stdout.write(f"{name}: {TROUBLES[name].summary}\n")
        for node in bench.scenes[name].nodes:
            sys.stdout.write(f"  rota -c {node.folder}/rota.toml status\n")
        sys.stdout.write(f"  alerts, in windows shortened: {bench.prometheus.url}/alerts\n  Ctrl-C ends it\n")
        sys.stdout.flush()
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


def _arguments() -> argparse.Namespace:
    what = "\n".join(f"  {name:16} {trouble.summary}" for name, trouble in TROUBLES.items())
    parser = argparse.ArgumentParser(
        prog="make trouble", description=f"{__doc__}\n\n{what}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", metavar="NAME", choices=TROUBLES)
    return parser.parse_args()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    main()
