"""`rota top`: a fleet in a terminal, once a second, from what `/status.json` of its nodes says.

`tables` and `summary` say what is shown, as pure functions over that answer; `top_app` draws it with Textual, which is
imported in `screens` and nowhere else.
"""
