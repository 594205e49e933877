"""`rota top`: a fleet in a terminal, refreshed each second, from the `/status.json` of its nodes.

`tables` and `fleet_view` decide what is shown, as pure functions over that reply. `top_app` draws it with Textual,
which only `top_app` and `screens` import.
"""
