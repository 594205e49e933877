"""What ends a run."""


class Violation(AssertionError):
    """Something that must never be."""


def require(condition: bool, text: str) -> None:
    """Raise a Violation unless the condition holds."""
    if not condition:
        raise Violation(text)
