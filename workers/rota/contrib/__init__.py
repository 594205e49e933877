"""Integrations of Rota with frameworks. No other part of Rota imports them."""
