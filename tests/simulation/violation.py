"""The error that ends a simulation."""


class Violation(AssertionError):
    """Raised if something happens that must never happen."""


def require(condition: bool, text: str) -> None:
    """Raise a Violation unless the condition holds."""
    if not condition:
        raise Violation(text)
