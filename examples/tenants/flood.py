"""A program in which one tenant requests many reports, and then two other tenants request ten each: python flood.py
[REPORTS]."""

import sys

import rota
from reports import make_report


def request(tenant: str, reports: int) -> None:
    """Enqueue this many reports for a tenant, in the tenant's own queue."""
    for_tenant = make_report.using(queue=f"tenant-{tenant}")
    rota.enqueue_many(for_tenant.call(number) for number in range(reports))
    print(f"tenant-{tenant} requested {reports} reports")


request("large", int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
request("blue", 10)
request("green", 10)
