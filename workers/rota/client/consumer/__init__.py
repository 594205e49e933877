"""Taking tasks in a program's own process: `client.consumer("queue")`."""

from rota.client.consumer.consumer import Consumer, Lines
from rota.client.consumer.lease import terms_of
from rota.client.consumer.task import LeasedTask

__all__ = ["Consumer", "LeasedTask", "Lines", "terms_of"]
