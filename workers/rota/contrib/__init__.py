"""Rota in frameworks. Nothing else of Rota imports this."""
