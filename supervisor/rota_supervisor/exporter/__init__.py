"""The exporter: the child that serves metrics, health and the status page over HTTP.

It reads the slots and asks Redis for the queues; it changes nothing but its own slot.
"""
