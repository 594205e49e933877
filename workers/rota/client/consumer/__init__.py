"""Taking tasks in a program's own process: `client.consumer("queue")`."""

from rota.client.consumer.consumer import Consumer
from rota.client.consumer.lease import Lines, terms_of
from rota.client.consumer.task import LeasedTask

__all__ = ["Consumer", "LeasedTask", "Lines", "terms_of"]
