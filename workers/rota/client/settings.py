"""What a client is made from, and the defaults of what nobody says."""

from dataclasses import dataclass
from typing import Final

DEFAULT_NAMESPACE: Final = "rota"
DEFAULT_MAX_PAYLOAD_KB: Final = 256
DEFAULT_TIMEOUT_SECONDS: Final = 5.0
DEFAULT_DURABILITY: Final = "none"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """What a client is made from; None where a source does not say."""

    redis_url: str | None = None
    namespace: str | None = None
    max_payload_kb: int | None = None
    durability: str | None = None

    @property
    def complete(self) -> bool:
        """Whether every value is said."""
        return bool(self.redis_url and self.namespace and self.max_payload_kb and self.durability)

    def or_else(self, other: "ClientSettings") -> "ClientSettings":
        """These, and the other's where these do not say."""
        return ClientSettings(
            self.redis_url or other.redis_url,
            self.namespace or other.namespace,
            self.max_payload_kb or other.max_payload_kb,
            self.durability or other.durability,
        )
