"""What people and probes are shown: lines of the log, the master's own numbers, the notice for the exporter."""

import math
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from rota.child.slot_memory import SlotMemory
from rota.child.slots import MASTER_SLOT
from rota.telemetry import events, log
from rota.telemetry import metrics as m
from rota.telemetry.recorder import Recorder
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolve import log_settings
from rota_supervisor.layout import Role
from rota_supervisor.master.core.effects import (
    AddToCounter,
    ConfigureLog,
    PutUpNotice,
    SetGauge,
    SetGaugeToNow,
    WriteLog,
)
from rota_supervisor.notice import Notice

_ROLES: Final = (Role.WORKER, Role.POLLER, Role.EXPORTER, Role.ZYGOTE)


class Display:
    """Writes them. The numbers are those whose definitions are marked MASTER."""

    def __init__(self, memory: SlotMemory) -> None:
        own = memory.slot(MASTER_SLOT)
        self._recorder = Recorder(own.metrics)
        self._notice = Notice(own.spare)

    @property
    def handlers(self) -> Mapping[type, Callable[[Any], None]]:
        """Who carries out which effect."""
        return {
            WriteLog: write_log,
            ConfigureLog: lambda effect: _change_log(effect.config),
            AddToCounter: self._add,
            SetGauge: self._set,
            SetGaugeToNow: lambda effect: self._recorder.gauge(effect.gauge).set(time.time()),
            PutUpNotice: lambda effect: self._notice.write(effect.held),
        }

    def begin(self) -> None:
        """Have every number there from the start."""
        self._recorder.gauge(m.CONFIG_LAST_RELOAD_SUCCESSFUL).set(1)
        self._recorder.gauge(m.CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP).set(time.time())
        for result in m.RELOAD_RESULTS:
            self._recorder.counter(m.CONFIG_RELOADS, result)
        for role in _ROLES:
            for reason in m.RESTART_REASONS:
                self._recorder.counter(m.PROCESS_RESTARTS, role.value, reason)
        self._recorder.counter(m.LEASES_LOST)
        self._recorder.gauge(m.REDIS_UP).set(0)
        self._recorder.gauge(m.REDIS_EVICTS_KEYS).set(0)

    def _add(self, effect: AddToCounter) -> None:
        counter = self._recorder.counter(effect.counter, *effect.labels)
        if effect.amount:
            counter.add(effect.amount)

    def _set(self, effect: SetGauge) -> None:
        value = math.nan if effect.value is None else effect.value
        self._recorder.gauge(effect.gauge, *effect.labels).set(value)


def write_log(effect: WriteLog) -> None:
    """Write one event."""
    getattr(log.logger(), effect.level)(effect.event, **effect.fields)


def configure_log(config: Config) -> None:
    """Set up the log of the master's process."""
    log.configure(log_settings(config), role=Role.MASTER.value, pid=os.getpid())


def _change_log(config: Config) -> None:
    """The same, while the fleet runs: where the library of a format cannot be loaded now, lines stay as they are."""
    try:
        configure_log(config)
    except (OSError, ImportError) as error:
        log.logger().error(events.CONFIG_WARNING, path="log.format", warning=f"it stays as it was: {error}")
