"""Self-signed certificates for tests."""

import subprocess
from pathlib import Path
from typing import NamedTuple


class Certificate(NamedTuple):
    """The files of a certificate for 127.0.0.1 and its key."""

    cert: Path
    key: Path


def certificate(folder: Path, name: str) -> Certificate:
    """Create a self-signed certificate and its key in a folder. `name` is the common name of the certificate, and the
    stem of both file names.
    """
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(made.key)]
    subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-days", "2", *key, *subject, "-out", str(made.cert)]
    subprocess.run(command, check=True, capture_output=True)
    return made
