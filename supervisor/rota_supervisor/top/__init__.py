"""`rota top`: a terminal view of a fleet, refreshed every second from the `/status.json` of a node.

`tables` and `fleet_view` contain the pure functions that decide what is shown. `top_app` draws the view with Textual.
Only `top_app` and `screens` import Textual.
"""
