"""All troubles, by their names."""

from typing import Final

from troubles.of_queues import forgotten_queue, rare_late_queue, saturation, unserved_queue
from troubles.of_tasks import crash_loop, failing_hook, failing_tasks, hung_task
from troubles.of_the_fleet import bad_reload, fleet_absent, log_blocked, node_lost, pollers_stuck, redis_away
from troubles.scene import Trouble

TROUBLES: Final[dict[str, Trouble]] = {
    trouble.name: trouble
    for trouble in (
        crash_loop,
        hung_task,
        failing_tasks,
        failing_hook,
        saturation,
        rare_late_queue,
        unserved_queue,
        forgotten_queue,
        pollers_stuck,
        redis_away,
        node_lost,
        fleet_absent,
        bad_reload,
        log_blocked,
    )
}
