"""The consumer, with which a program takes tasks in its own process: `client.consumer("queue")`."""

from rota.client.consumer.consumer import Consumer
from rota.client.consumer.lease import ConsumerOptions, ConsumerTransport, consumer_options
from rota.client.consumer.leased_task import ClaimedTask, LeasedTask

__all__ = ["ClaimedTask", "Consumer", "ConsumerOptions", "ConsumerTransport", "LeasedTask", "consumer_options"]
