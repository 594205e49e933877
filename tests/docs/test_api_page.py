"""docs/api.md is what the docstrings say today."""

import api_page


def test_the_page_is_made_of_the_docstrings_as_they_are() -> None:
    assert api_page.PAGE.read_text(encoding="utf-8") == api_page.page(), (
        "run `make docs`, which writes docs/api.md anew"
    )
