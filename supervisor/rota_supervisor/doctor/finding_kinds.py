"""The table of all findings of `rota doctor`, with the severity, the meaning and the remedy of each finding.

`docs/doctor.md` shows the same table; a test compares them.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rota_supervisor.exits import ExitCode


class Severity(StrEnum):
    """The severity of a finding. The worst is listed first."""

    ERROR = "error"  # the fleet cannot run, or loses tasks or running work
    WARNING = "warning"  # the fleet runs, but a person should change something
    NOTE = "note"  # information that needs no action


@dataclass(frozen=True, slots=True)
class FindingKind:
    """A kind of finding."""

    id: str
    severity: Severity
    means: str  # what happens because of the problem
    remedy: str  # how to solve the problem
    code: ExitCode = ExitCode.NO  # the exit code of `rota doctor` if this kind is an error


_ERROR: Final = Severity.ERROR
_WARNING: Final = Severity.WARNING
_NOTE: Final = Severity.NOTE

_OF_CONFIGURATION: Final = (
    FindingKind(
        "configuration-invalid",
        _ERROR,
        "A fleet does not start with this configuration, and a running fleet refuses to reload it.",
        "Correct the value that the finding names. All faults are listed at once.",
        ExitCode.CONFIG,
    ),
    FindingKind(
        "configuration-warning",
        _WARNING,
        "The configuration can be used, but probably does not do what was meant.",
        "Change the setting that the finding names.",
    ),
    FindingKind(
        "code-unusable",
        _ERROR,
        "The modules that define the tasks cannot be imported, or do not fit the configuration, so no worker would "
        "start.",
        "Correct the module or the setting. Run this command in the folder in which `rota run` is started.",
        ExitCode.CONFIG,
    ),
    FindingKind(
        "http-certificate",
        _ERROR,
        "The exporter cannot serve metrics, health and the status page.",
        "Set http.tls_cert and http.tls_key to a certificate and its key in PEM format.",
        ExitCode.CONFIG,
    ),
)

_OF_MACHINE: Final = (
    FindingKind(
        "limit-too-low",
        _ERROR,
        "A master with this limit refuses to start.",
        "Raise the limit: with `ulimit` in a shell, or with LimitNOFILE=, LimitAS= or LimitFSIZE= in a systemd unit.",
        ExitCode.CONFIG,
    ),
    FindingKind(
        "open-files-low",
        _WARNING,
        "The master keeps one file open for the stack of each child. If it cannot open that file, the death of the "
        "child is reported without a stack. Tasks inherit the limit.",
        "Raise the limit on open files (`ulimit -n`, LimitNOFILE=) to the number in the finding, or more.",
    ),
    FindingKind(
        "processes-exhausted",
        _ERROR,
        "The kernel refuses to fork more workers, so the pool has too few of them. Threads count as processes.",
        "Raise the limit that the finding names (`ulimit -u`, LimitNPROC=, TasksMax=, --pids-limit, kernel.pid_max), "
        "or run fewer workers.",
    ),
    FindingKind(
        "processes-low",
        _WARNING,
        "During a reload, new workers run beside the old ones, and tasks may start processes and threads. The limit "
        "leaves little room for them.",
        "Raise the limit that the finding names (`ulimit -u`, LimitNPROC=, TasksMax=, --pids-limit, kernel.pid_max).",
    ),
    FindingKind(
        "memory-too-small",
        _ERROR,
        "Even without your code, the processes of the fleet need more memory than there is, so the kernel kills "
        "workers.",
        "Give the machine, the container (limits.memory) or the unit (MemoryMax=) more memory, or run fewer workers.",
    ),
    FindingKind(
        "memory-low",
        _WARNING,
        "When the memory is used up, the kernel kills a process, usually a worker with its task.",
        "Raise the memory limit, run fewer workers, or set limits.max_rss_mb so that workers are replaced when they "
        "have grown.",
    ),
    FindingKind(
        "memory-workers-may-exceed",
        _WARNING,
        "Each worker may grow by limits.max_rss_mb before it is replaced, and all workers together may then need more "
        "memory than the limit.",
        "Lower limits.max_rss_mb or the number of workers, or raise the memory limit.",
    ),
    FindingKind(
        "memory-unbounded",
        _NOTE,
        "The memory is limited, but no worker is replaced when it has grown. If a task leaks memory, the kernel "
        "eventually kills a process.",
        "Set limits.max_rss_mb to the amount by which one worker may grow.",
    ),
    FindingKind(
        "memory-kills-together",
        _ERROR,
        "If one task takes too much memory, the kernel kills the master and all its children with it.",
        "Set OOMPolicy=continue in the systemd unit, or singleProcessOOMKill in the configuration of the kubelet.",
    ),
    FindingKind(
        "cpu-workers-by-machine",
        _WARNING,
        "Without `workers`, a fleet has one worker for each processor of the machine, and this fleet may use fewer "
        "processors than that.",
        "Set `workers` in rota.toml.",
    ),
    FindingKind(
        "cpu-workers-many",
        _NOTE,
        "Tasks that compute share the processors, so each of them takes longer. Tasks that wait for I/O do not.",
        "Run fewer workers, raise the share of processors, or use a pool with `concurrency` for tasks that wait.",
    ),
    FindingKind(
        "shm-unusable",
        _WARNING,
        "Rota itself does not use /dev/shm, but multiprocessing, browsers and many libraries do, and they fail without "
        "it.",
        "Mount a writable tmpfs at /dev/shm.",
    ),
    FindingKind(
        "shm-full",
        _WARNING,
        "Tasks that use shared memory fail. The files in /dev/shm also take memory of the machine or the container.",
        "Remove the files that a crashed program left in /dev/shm, or raise its size.",
    ),
    FindingKind(
        "shm-small",
        _NOTE,
        "This is enough for Rota. Tasks that share arrays between processes or run a browser may need more.",
        "Raise the size if tasks need it: with --shm-size, with shm_size in a compose file, or with an emptyDir of "
        "medium Memory.",
    ),
    FindingKind(
        "thp-always",
        _NOTE,
        "Workers share the memory of the zygote page by page. With transparent huge pages, a write copies 2 MB instead "
        "of 4 kB, so each worker takes more private memory.",
        "Run `echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`, also at each boot.",
    ),
    FindingKind(
        "overcommit-strict",
        _WARNING,
        "With vm.overcommit_memory = 2, the kernel reserves memory for every fork as if nothing were shared. It may "
        "refuse to fork a worker although enough memory is free.",
        "Run `sysctl vm.overcommit_memory=0` (or 1), and add the setting to /etc/sysctl.d/ too.",
    ),
    FindingKind(
        "clock-offset",
        _WARNING,
        "Leases, due times and lag use the clock of Redis, so no task is affected. Times in the log and certificates "
        "use the clock of this machine.",
        "Synchronize the clocks of both machines, for example with chrony.",
    ),
)

_OF_UNIT: Final = (
    FindingKind(
        "grace-too-short",
        _ERROR,
        "The service manager kills the fleet before the drain has ended. The interrupted tasks run again when the "
        "leases have expired.",
        "Set TimeoutStopSec=, terminationGracePeriodSeconds or `docker stop --time` to at least 15 s more than "
        "limits.drain_seconds, or lower limits.drain_seconds.",
    ),
    FindingKind(
        "grace-tight",
        _WARNING,
        "After the drain, the master needs some seconds to return the killed tasks to their queues and to stop its "
        "other children.",
        "Set TimeoutStopSec=, terminationGracePeriodSeconds or `docker stop --time` to at least 15 s more than "
        "limits.drain_seconds.",
    ),
    FindingKind(
        "unit-kill-mode",
        _WARNING,
        "systemd sends TERM to the workers too, and the master then reports their exits as deaths.",
        "Set KillMode=mixed in the unit.",
    ),
    FindingKind(
        "unit-oom-policy",
        _WARNING,
        "If one worker runs out of memory, systemd stops the whole service.",
        "Set OOMPolicy=continue in the unit.",
    ),
    FindingKind(
        "unit-watchdog",
        _WARNING,
        "A loaded machine may be too slow for this interval, and systemd then kills a healthy master.",
        "Set WatchdogSec=30 in the unit, and never less than 5 s.",
    ),
)

_OF_SERVER: Final = (
    FindingKind(
        "redis-unreachable",
        _ERROR,
        "No task can be enqueued, claimed or settled.",
        "Start the server, or correct the address and the credentials.",
        ExitCode.UNREACHABLE,
    ),
    FindingKind(
        "redis-access",
        _ERROR,
        "The connection cannot be made with these settings.",
        "Correct the setting that the finding names.",
        ExitCode.CONFIG,
    ),
    FindingKind(
        "redis-unfit",
        _ERROR,
        "A master refuses to start on this server.",
        "Correct the setting or the permission that the finding names, or upgrade the server.",
        ExitCode.CONFIG,
    ),
    FindingKind(
        "redis-evicts-keys",
        _ERROR,
        "When its memory is full, the server evicts keys, and accepted tasks are lost with them.",
        "Set maxmemory-policy noeviction in the server's configuration.",
        ExitCode.CONFIG,
    ),
    FindingKind(
        "redis-durability",
        _WARNING,
        "Each enqueue waits for a confirmation that this server does not send, or sends too early.",
        "Change the server or `durability`, as the finding says.",
    ),
    FindingKind(
        "redis-not-persistent",
        _WARNING,
        "When the server restarts, all tasks are lost.",
        "Set appendonly yes in the server's configuration.",
    ),
    FindingKind(
        "redis-snapshots-only",
        _NOTE,
        "After a crash of the server, the tasks accepted since the last snapshot are lost, and those that have ended "
        "since then run again.",
        "Set appendonly yes in the server's configuration, unless you can afford to lose the tasks of some minutes.",
    ),
    FindingKind(
        "redis-never-syncs",
        _WARNING,
        "With appendfsync no, the tasks of the last half minute may be lost if the server's machine crashes.",
        "Set appendfsync everysec in the server's configuration.",
    ),
    FindingKind(
        "redis-save-failed",
        _ERROR,
        "The server does not save the tasks that it accepts, and may refuse writes.",
        "See the log of the server. Usually its disk is full, its folder is missing, or there was too little memory "
        "for a fork.",
    ),
    FindingKind(
        "redis-fork-slow",
        _WARNING,
        "While the server forks for a snapshot or a rewrite, it serves no client, so tasks start late each time.",
        "Turn transparent huge pages off on its machine, reduce the data, or use a machine with faster forks.",
    ),
    FindingKind(
        "redis-memory-full",
        _ERROR,
        "The server refuses every enqueue. Running tasks can still be settled.",
        "Raise maxmemory, or purge tasks that are not needed: see `rota queue ls` and `rota dead ls`.",
    ),
    FindingKind(
        "redis-memory-low",
        _WARNING,
        "When maxmemory is reached, the server refuses every enqueue.",
        "Raise maxmemory, or find out what fills the server with `rota queue ls` and `redis-cli --bigkeys`.",
    ),
    FindingKind(
        "redis-memory-unlimited",
        _NOTE,
        "Without maxmemory, a backlog may grow until the kernel kills the server.",
        "Set maxmemory to about three quarters of the memory of its machine. The server then refuses enqueues instead.",
    ),
    FindingKind(
        "redis-memory-machine",
        _WARNING,
        "The machine or container of the server has little memory left. The kernel may kill the server, especially "
        "during a save.",
        "Give the machine or container more memory, and set maxmemory to about three quarters of that memory.",
    ),
    FindingKind(
        "redis-timeout",
        _WARNING,
        "The server closes connections that have been idle for the time in `timeout`. Applications and exporters then "
        "have to connect again before each use.",
        "Set timeout 0 in the server's configuration. With tcp-keepalive, the server still detects dead clients.",
    ),
    FindingKind(
        "redis-keepalive-off",
        _WARNING,
        "The server never notices when a client's machine is gone. It keeps the connections, so maxclients may be "
        "reached in the end.",
        "Set tcp-keepalive 300 in the server's configuration.",
    ),
    FindingKind(
        "redis-clients-low",
        _WARNING,
        "When maxclients is reached, the server refuses new connections from workers and applications.",
        "Raise maxclients (and the limit on open files of the server), or find the clients with many connections: "
        "`redis-cli client list`.",
    ),
    FindingKind(
        "redis-replica-behind",
        _WARNING,
        "If this replica takes over, the tasks that it has not received yet are lost.",
        "Check the log of the replica, the network, and client-output-buffer-limit of the server.",
    ),
    FindingKind(
        "redis-replicas-missing",
        _ERROR,
        "The server refuses every write until it has min-replicas-to-write replicas that are up to date.",
        "Start the replicas, or lower min-replicas-to-write.",
    ),
    FindingKind(
        "redis-cluster-one-node",
        _WARNING,
        "The fleet stops when another node of the cluster takes over the hash slots of this node.",
        "Begin redis_url with redis+cluster:// (or rediss+cluster://), and name several nodes.",
    ),
    FindingKind(
        "redis-cluster-coverage",
        _NOTE,
        "While any hash slot has no primary, the whole cluster refuses commands, although the fleet needs only one "
        "slot.",
        "Set cluster-require-full-coverage no on all nodes.",
    ),
    FindingKind(
        "redis-slow",
        _WARNING,
        "Each claim and each settlement takes at least one round trip, so tasks start late although nothing fails.",
        "Run the fleet near the server. `redis-cli slowlog get` shows slow commands of other clients.",
    ),
    FindingKind(
        "redis-latency-events",
        _WARNING,
        "The server was blocked, and no task could start during that time.",
        "Run `redis-cli latency doctor` on the server, which explains the event.",
    ),
    FindingKind(
        "redis-machine-thp",
        _WARNING,
        "The server's process uses transparent huge pages: forks take long, and each write after a fork copies 2 MB.",
        "Set disable-thp yes in the server's configuration, or madvise in /sys/kernel/mm/transparent_hugepage/enabled.",
    ),
    FindingKind(
        "redis-machine-overcommit",
        _WARNING,
        "When much memory is in use, the kernel may refuse the fork for a snapshot or a rewrite. The server then "
        "refuses writes.",
        "Run `sysctl vm.overcommit_memory=1` on the server's machine, and add the setting to /etc/sysctl.d/ too.",
    ),
)

_OF_FLEET: Final = (
    FindingKind(
        "fleet-not-ready",
        _ERROR,
        "The fleet on this node does not accept work.",
        "Run `rota status`, and follow the runbook.",
    ),
    FindingKind(
        "fleet-not-seen",
        _NOTE,
        "No master of this configuration replies on this machine. The limits and cgroups shown are those of this "
        "command, and may differ from those of the service.",
        "Run the command on a node of the fleet, as the fleet's user, while the fleet runs.",
    ),
    FindingKind(
        "reload-refused",
        _WARNING,
        "The fleet runs with an older configuration than its file, and a start would fail.",
        "Correct the file and run `rota reload`.",
    ),
    FindingKind(
        "tasks-missing",
        _ERROR,
        "Accepted tasks were lost, for example because the server lost writes or keys were deleted.",
        "Run `rota audit`, and see RotaTasksMissing in the runbook.",
    ),
    FindingKind(
        "node-lost",
        _WARNING,
        "Other nodes run the tasks that this node held, but the fleet has fewer workers without the node.",
        "See the log of that node.",
    ),
    FindingKind(
        "namespace-shared",
        _ERROR,
        "Fleets with different code serve the same queue of one namespace. If a worker of the wrong fleet claims a "
        "task, the task becomes dead, because its name is not known there.",
        "Give each application its own `namespace`.",
    ),
    FindingKind(
        "namespace-two-fleets",
        _WARNING,
        "Fleets with different code use one namespace. Ids, unique keys, schedules, the audit and the metrics are "
        "common to both.",
        "Give each application its own `namespace`, unless they share one on purpose.",
    ),
    FindingKind(
        "nodes-code-differs",
        _WARNING,
        "A task becomes dead if its name is not known on the node that claims it. This is normal during a deploy.",
        "Finish the deploy: restart the nodes with the older code.",
    ),
    FindingKind(
        "nodes-versions-differ",
        _NOTE,
        "Nodes of several versions of Rota run side by side, as in a rolling upgrade.",
        "Finish the upgrade.",
    ),
    FindingKind(
        "nodes-settings-differ",
        _WARNING,
        "Nodes disagree on the order or the options of a queue, so priorities and limits depend on the node that "
        "claims. For consumers, the latest heartbeat decides.",
        "Give all nodes of the fleet the same tiers and [queues.NAME], and reload them.",
    ),
    FindingKind(
        "nodes-one-host",
        _WARNING,
        "Two live masters of this namespace report the same host. Either one fleet was started twice, or two machines "
        "or containers have the same host name.",
        "Stop one of the masters, or give each machine its own name.",
    ),
)

FINDINGS: Final = {kind.id: kind for kind in (*_OF_CONFIGURATION, *_OF_MACHINE, *_OF_UNIT, *_OF_SERVER, *_OF_FLEET)}
