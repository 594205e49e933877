"""docs/api.md matches the current docstrings."""

import api_page


def test_api_page_is_up_to_date() -> None:
    assert api_page.PAGE.read_text(encoding="utf-8") == api_page.page(), (
        "run `make docs`, which writes docs/api.md again"
    )
