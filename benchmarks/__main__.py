"""All benchmarks, one after another, each in a process of its own: about half an hour on one quiet core."""

from __future__ import annotations

import subprocess
import sys

ALL = ("breakdown", "throughput", "scaling", "memory", "report")


def main() -> int:
    """Run them; the exit code is the number of those that failed."""
    failed = 0
    for name in ALL:
        print(f"== python -m benchmarks.{name}", flush=True)
        failed += subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
