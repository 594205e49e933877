"""`rota top`: a fleet in a terminal, refreshed every second, from the `/status.json` of its nodes.

`tables` and `fleet_view` are pure functions that decide what is shown. `top_app` draws it with Textual, which is
imported only by `top_app` and `screens`.
"""
