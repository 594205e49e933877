"""The user and the password in the URL of a server. The functions expect a valid URL."""

from urllib.parse import unquote


def login_in(url: str) -> tuple[str, str] | None:
    """Return the user and the password in a URL, or None if it contains neither."""
    credentials, at, _ = _parts(url)[1].rpartition("@")
    user, _, password = credentials.partition(":")
    return (unquote(user), unquote(password)) if at else None


def without_login(url: str) -> str:
    """Return a URL without its user and password."""
    scheme, authority, rest = _parts(url)
    return f"{scheme}{authority.rpartition('@')[2]}{rest}"


def _parts(url: str) -> tuple[str, str, str]:
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    return scheme + separator, authority, slash + path
