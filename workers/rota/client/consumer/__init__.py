"""Taking tasks in a program's own process with `client.consumer("queue")`."""

from rota.client.consumer.consumer import Consumer
from rota.client.consumer.lease import Lines, Terms, terms_of
from rota.client.consumer.leased_task import ClaimedTask, LeasedTask

__all__ = ["ClaimedTask", "Consumer", "LeasedTask", "Lines", "Terms", "terms_of"]
