"""Values of the chart for tests: the default values, and values that turn on all optional parts."""

from typing import Final

from chart.kube import Object

EVERYTHING: Final[Object] = {
    "pools": ["urgent"],
    "config": {
        "namespace": "shop",
        "imports": ["tasks"],
        "tiers": [["urgent"], ["default", "tenant-*"]],
        "queues": {"urgent": {"weight": 2.5, "rate": "100/m"}, "tenant-*": {"cap": 3}},
        "pools": {"urgent": {"workers": 2}, "slow": {"workers": 3, "concurrency": 10}},
        "http": {"actions": True, "allowed_hosts": ["rota.example"]},
        "limits": {"drain_seconds": 90.5},
    },
    "redis": {
        "url": "rediss://shop:secret@redis.example:6379/0",
        "tls": {"secret": "redis-tls", "cert": "tls.crt", "key": "tls.key"},
    },
    "http": {
        "token": {"secret": "rota-token"},
        "readToken": {"secret": "rota-read-token"},
        "tls": {"secret": "rota-tls"},
    },
    "sharedMemory": "128Mi",
    "networkPolicy": {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]},
    "podMonitor": {"enabled": True, "tls": {"serverName": "rota", "caSecret": "rota-ca"}},
    "prometheusRule": {"enabled": True},
    "dashboards": {"enabled": True},
    "keda": {"enabled": True, "authentication": "prometheus"},
}
SITUATIONS: Final[dict[str, Object]] = {"defaults": {}, "everything": EVERYTHING}
