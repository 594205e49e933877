"""The exporter: the child that serves metrics, health and the status page over HTTP. It reads the slots of all
processes, and the queues in Redis. It writes only to its own slot."""
