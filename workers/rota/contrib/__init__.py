"""Integrations of Rota into frameworks. No other part of Rota imports them."""
