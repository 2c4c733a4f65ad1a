"""The SO-101 demo task: put the cube on the named pad.

A simulated SO-101 arm (MuJoCo), two cameras, a one-line instruction and the
success rule of the ``lerobot-env-so101`` package. Importing this package picks
the OpenGL backend, so import it before ``mujoco``::

    from so101 import Task

    task = Task(hz=10, image_size=96)
    seen = task.reset(seed=0)
    success = task.step(seen.state)      # six joint targets in rad
"""

from . import gl

gl.select_backend()

from .task import COLORS, JOINTS, VIEWS, Observation, Task  # noqa: E402
from .tokens import MAX_TOKENS, VOCABULARY, WORDS, tokenize  # noqa: E402

__all__ = [
    "COLORS",
    "JOINTS",
    "MAX_TOKENS",
    "Observation",
    "Task",
    "VIEWS",
    "VOCABULARY",
    "WORDS",
    "tokenize",
]
