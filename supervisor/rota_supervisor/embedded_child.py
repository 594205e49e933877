"""The step between us and a server or fleet of our own: ties its life to its parent's, then becomes it.

Called as `python -P -m rota_supervisor.embedded_child PARENT_PID BINARY [ARGUMENT...]`.
"""

import os
import sys

from rota_supervisor.process import die_with_parent


def main() -> None:
    """Become the command; leave at once when the parent is gone."""
    parent, *command = sys.argv[1:]
    if not die_with_parent(int(parent)):
        sys.exit(1)
    os.execv(command[0], command)  # noqa: S606 - no shell: it is the command itself


if __name__ == "__main__":
    main()
