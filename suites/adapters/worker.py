"""The child's side of ``suites.adapters.subprocess``: one environment, driven over a pipe, seen through shared memory.

Run as ``python -m suites.adapters.worker PIPE MEMORY LIFE PARENT``; the first three are inherited file descriptors.
"""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import traceback
from multiprocessing.connection import Connection

from harness.errors import UserError
from harness.life import die_together, die_with_parent
from suites.adapters.memory import Views, shared_bytes, views, write
from suites.adapters.single import IllegalMoment, Single, check, scene_of, seed_globals


def _serve(pipe: Connection, env: Single, memory: int, name: str) -> None:
    """Answer ("memory", E, index), ("reset", seed), ("step",) and ("scene", action) until told to close."""
    shared: Views | None = None
    index, steps = 0, 0
    while True:
        order, *rest = pipe.recv()
        if order == "close":
            return
        if order == "memory":
            num_envs, index = rest
            shared = views(mmap.mmap(memory, shared_bytes(env.layout, num_envs)), env.layout, num_envs)
            pipe.send(("ok", None))
            continue
        if shared is None:
            raise RuntimeError("no shared memory yet")
        if order == "scene":
            pipe.send(("ok", scene_of(env, rest[0])))
            continue
        if order == "reset":
            seed_globals(rest[0])
            steps, moment = 0, env.reset(rest[0])
        else:
            steps, moment = steps + 1, env.step(shared.action[index].copy())
        write(shared, index, check(moment, name, steps))
        pipe.send(("ok", None))


def main(arguments: list[str]) -> None:
    """Build the environment and serve it; whatever goes wrong is told to the parent."""
    control, memory, life, parent = map(int, arguments)
    pipe = Connection(control)
    env: Single | None = None
    shell: subprocess.Popen[bytes] | None = None
    try:
        path, name, own_children = pipe.recv()
        sys.path[:] = path
        shell = die_together(life)
        if not own_children:
            die_with_parent(parent)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which closes its environments
        make = pipe.recv()
        env = make()
        pipe.send(("layout", tuple(env.layout)))
        _serve(pipe, env, memory, name)
    except UserError as error:
        pipe.send(("user", str(error)))
    except IllegalMoment as error:
        pipe.send(("illegal", str(error)))
    except (EOFError, BrokenPipeError):
        pass
    except BaseException as error:
        pipe.send(("error", f"{type(error).__name__}: {error}\n{traceback.format_exc()}"))
    finally:
        try:
            if env is not None:
                env.close()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            if shell is not None:
                shell.kill()
                shell.wait()
            # Itself included: whatever the environment started and did not end must not be left behind.
            os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
