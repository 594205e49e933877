"""`rota top`: a fleet in a terminal, once a second, from what `/status.json` of its nodes says.

`tables` and `fleet_view` say what is shown, as pure functions over that answer; `top_app` draws it with Textual, which
is imported there and in `screens` alone.
"""
