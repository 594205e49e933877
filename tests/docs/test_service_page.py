"""docs/service.md matches the code and the files of deploy/."""

import re
from typing import Any

import yaml

from rota_supervisor.config.model import Config, Limits
from rota_supervisor.master.core.targets import LEAVE_SECONDS
from support.prose import ROOT, blocks

PATH = ROOT / "docs/service.md"
PAGE = PATH.read_text(encoding="utf-8")
MASTER = ROOT / "supervisor/rota_supervisor/master"
SENDERS = ("core/manager_messages.py", "effects/notify_socket.py")
CODE = "".join((MASTER / name).read_text(encoding="utf-8") for name in SENDERS)


def test_the_service_page_lists_every_message_to_the_service_manager() -> None:
    rows = re.findall(r"^\| ((?:`[A-Z_]+=\w*`(?:, )?)+) \|", PAGE, re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`([A-Z_]+)=", row)}

    sent = set(re.findall(r"(?:\\n|\b)([A-Z][A-Z_]+)=(?=[1{])", CODE))

    assert listed == sent


def test_pod_example_has_correct_grace_period_and_probes() -> None:
    (text,) = [block.text for block in blocks(PATH) if block.language == "yaml"]
    spec: dict[str, Any] = yaml.safe_load(text)["spec"]

    assert spec["terminationGracePeriodSeconds"] >= Limits().drain_seconds + 2 * LEAVE_SECONDS
    (container,) = spec["containers"]
    assert Config().http.listen.endswith(f":{container['ports'][0]['containerPort']}")
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
