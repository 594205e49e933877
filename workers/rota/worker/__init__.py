"""The worker: claims tasks, one turn a round trip, and runs them one after another."""

from rota.worker.run import run_worker

__all__ = ["run_worker"]
