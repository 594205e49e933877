"""The configuration of Sphinx, with which `make docs` makes the site from the unchanged pages.

The pages are plain Markdown with relative links. The source is the top of the repository, so links lead to the same
pages on the site and where the code is hosted. The lists in docs/README.md determine the menu and its order.
"""

import re
from typing import Any
from urllib.parse import urlsplit

from docutils import nodes
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.util import logging

project = "Rota"
extensions = ["myst_parser"]
root_doc = "docs/README"
include_patterns = ["*.md", "docs/**.md", "examples/**.md", "benchmarks/**.md", "deploy/**.md", "grafana/**.md"]
exclude_patterns = [".*", "build", "dist", "tests", "workers", "supervisor", "**/node_modules", "**/__pycache__"]
nitpicky = True

myst_enable_extensions = ["tasklist"]
myst_heading_anchors = 4  # as GitHub makes them

html_theme = "furo"
html_title = "Rota"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["root"]
html_show_copyright = html_show_sphinx = html_copy_source = False
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
pygments_style, pygments_dark_style = "tango", "monokai"

_LISTS = re.compile(r"^## (?P<caption>.+)\n(?P<text>(?:(?!## ).*\n?)*)", re.MULTILINE)
_PAGE = re.compile(r"^(?:-|\d+\.) \[(?P<title>[^\]]+)\]\((?P<path>[^)#]+)\.md\)", re.MULTILINE)
_log = logging.getLogger(__name__)


def add_menu(_: Sphinx, page: str, source: list[str]) -> None:
    """Make the menu from the lists in docs/README.md and docs/adr/README.md. Sphinx warns of unlisted pages."""
    if page == root_doc:
        source[0] += "".join(_menu(found["text"], found["caption"]) for found in _LISTS.finditer(source[0]))
    elif page == "docs/adr/README":
        source[0] += _menu(source[0], "Decisions")


def _menu(text: str, caption: str) -> str:
    entries = "\n".join(f"{title} <{path}>" for title, path in _PAGE.findall(text))
    return f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"


def check_addresses(_: Sphinx, page: nodes.document) -> None:
    """Warn of external links that are not valid addresses. No address is requested: the build stays offline."""
    for link in page.findall(nodes.reference):
        address = urlsplit(link.get("refuri", ""))
        if address.scheme not in ("", "http", "https", "mailto") or (
            address.scheme[:4] == "http" and not address.hostname
        ):
            _log.warning("not a valid address: %s", link["refuri"], location=link)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the functions above. Sphinx calls this."""
    app.add_lexer("mermaid", TextLexer)  # shown as text: drawing it on the site would take 3 MB of scripts
    app.connect("source-read", add_menu)
    app.connect("doctree-read", check_addresses)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
