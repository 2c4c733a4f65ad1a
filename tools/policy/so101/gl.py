"""Choice of MuJoCo's OpenGL backend for headless rendering."""

import os
import subprocess
import sys

_PROBE = "import mujoco; mujoco.GLContext(16, 16).make_current()"


def _works(backend: str) -> bool:
    """Whether a fresh interpreter can make a context (exit-time noise ignored)."""
    probe = subprocess.run(
        [sys.executable, "-c", _PROBE + "; print('ok', flush=True)"],
        env={**os.environ, "MUJOCO_GL": backend},
        capture_output=True,
        text=True,
    )
    return "ok" in probe.stdout


def select_backend() -> str:
    """Set ``MUJOCO_GL`` unless the caller did: EGL, or OSMesa where EGL fails.

    MuJoCo reads the variable at its first import, so this runs before that. The
    choice is inherited by child processes, which then skip the probe.
    """
    if "MUJOCO_GL" not in os.environ:
        os.environ["MUJOCO_GL"] = "egl" if _works("egl") else "osmesa"
    if os.environ["MUJOCO_GL"] == "osmesa":
        os.environ.setdefault("PYOPENGL_PLATFORM", "osmesa")
    return os.environ["MUJOCO_GL"]
