"""Declaring tasks: what an application that enqueues tasks and a worker that runs them share."""
