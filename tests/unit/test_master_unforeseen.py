"""Everything that Python and its libraries would write to standard error becomes a log event."""

import json
import subprocess
import sys

SCENE = """
import asyncio, logging, threading, warnings
from rota.child.child_settings import LogSettings
from rota.telemetry import log
from rota_supervisor.master.effects import master_output

class Leaves:
    def __del__(self):
        raise ValueError("at its end")

def fail():
    raise ValueError("somewhere")

async def scene():
    master_output.log_loop_errors(asyncio.get_running_loop())
    asyncio.get_running_loop().call_soon(fail)
    await asyncio.sleep(0.01)

log.configure(LogSettings())
master_output.log_everything()
warnings.warn("old ways")
logging.getLogger("asyncio").warning("slow %s", "callback")
logging.getLogger("shop").error("wrong %d", "number")
logging.getLogger("shop").info("nothing special")
thread = threading.Thread(target=fail, name="resolver")
thread.start()
thread.join()
Leaves()
asyncio.run(scene())
fail()
"""


def test_unexpected_errors_in_the_master_are_written_only_to_the_log() -> None:
    done = subprocess.run([sys.executable, "-c", SCENE], capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stderr.splitlines()]  # standard error contains nothing else
    *told, end = lines
    assert [(line["event"], line["source"]) for line in told] == [
        ("fleet.call_failed", source) for source in ("warnings", "asyncio", "shop", "threading", "python", "asyncio")
    ]
    for line, said in zip(told, ("old ways", "slow callback", "wrong %d", "resolver", "__del__", "fail"), strict=True):
        assert said in line["error"]
    assert [line["exception"].splitlines()[-1] for line in told[3:]] == [
        "ValueError: somewhere",
        "ValueError: at its end",
        "ValueError: somewhere",
    ]
    assert (done.returncode, end["event"], end["exit_code"]) == (1, "fleet.failed", 1)
    assert end["error"] == "ValueError: somewhere"
