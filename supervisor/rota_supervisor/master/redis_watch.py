"""Whether Redis answers: told once when it is lost and once when it is back."""

from rota.server.aio_connection import Watch
from rota.server.server_errors import Refused, ServerError
from rota.telemetry import events, log
from rota_supervisor.master.shown.gauges import Gauges


class RedisWatch:
    """What the master's connection tells."""

    def __init__(self, gauges: Gauges, where: str) -> None:
        self._gauges = gauges
        self._where = where
        self.up: bool | None = None

    @property
    def watch(self) -> Watch:
        """For the connection."""
        return Watch(self._answered, self._failed)

    def _answered(self) -> None:
        if self.up is False:
            log.logger().info(events.REDIS_BACK, redis=self._where)
        self.up = True
        self._gauges.show_redis(up=True)

    def _failed(self, error: ServerError) -> None:
        self._gauges.count_redis_error(error.reason)
        if isinstance(error, Refused):  # it answers, though not as we like
            return
        if self.up:
            log.logger().error(events.REDIS_LOST, redis=self._where, error=str(error))
        self.up = False
        self._gauges.show_redis(up=False)
