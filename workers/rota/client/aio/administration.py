"""The client methods that administer queues and dead tasks."""

from rota.client.aio.driver import AsyncLifecycle
from rota.tasks.options import check_queue, require_name


class AsyncAdministration(AsyncLifecycle):
    """The part of a client that pauses and resumes queues, and revives and deletes dead tasks."""

    async def pause(self, queue: str) -> bool:
        """Pause a queue, so that no worker claims from it, and return False if it was paused already.

        Running tasks continue, and new tasks are accepted and wait. The pause lasts until `resume`, even if the fleet
        is restarted.

        Raises:
            InvalidName: If the queue is not a valid name.
            Unavailable: If the server cannot be reached or refuses the call. Nothing was changed.
            Uncertain: If the server did not reply in time. The call can be repeated.
        """
        check_queue(queue)
        return await self._driver.run(self._driver.store.pause(queue)) > 0

    async def resume(self, queue: str) -> bool:
        """Resume a queue, so that workers claim from it again, and return False if it was not paused.

        If tasks wait in the queue, a worker is woken at once. A queue that its condition keeps closed stays closed.

        Raises:
            InvalidName: If the queue is not a valid name.
            Unavailable: If the server cannot be reached or refuses the call. Nothing was changed.
            Uncertain: If the server did not reply in time. The call can be repeated.
        """
        check_queue(queue)
        return await self._driver.run(self._driver.store.resume(queue)) > 0

    async def revive(self, task_id: str) -> bool:
        """Put a dead task back in its lane, and return False if it is not dead.

        The task runs as if it were enqueued now: its failures, crashes and losses are reset to 0, so that it has all
        its retries again. It no longer belongs to its chain or group, and runs alone.

        Raises:
            InvalidName: If the id is not a valid name.
            ServerFull: If the server has no memory left. The task is still dead.
            Unavailable: If the server cannot be reached or refuses the call. Nothing was changed.
            Uncertain: If the server did not reply in time. The call can be repeated.
        """
        require_name("id", task_id)
        return await self._driver.run(self._driver.store.revive([task_id]), [task_id]) > 0

    async def purge_dead(self, task_id: str) -> bool:
        """Delete a dead task permanently, and return False if it is not dead.

        Its arguments and the record of its death are deleted with it, and its id can be enqueued again.

        Raises:
            InvalidName: If the id is not a valid name.
            Unavailable: If the server cannot be reached or refuses the call. Nothing was changed.
            Uncertain: If the server did not reply in time. The call can be repeated.
        """
        require_name("id", task_id)
        return await self._driver.run(self._driver.store.purge_dead([task_id]), [task_id]) > 0
