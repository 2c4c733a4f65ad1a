"""The arm and the node in free-running closed loop: command, move, frame, command."""

import time
from dataclasses import dataclass

import numpy as np

from .lockstep import Frame, Recording, row_of
from .policy_client import PolicyClient, PolicyError, as_chunk
from .sim_node import SimNode

MAX_STEPS = 150
EPISODE_START = "episode_start"
# The slowest tick and a full hold fit many times.
_COMMAND_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class EpisodeResult:
    """What became of one episode; ``chunks`` counts those of which a row was executed."""

    seed: int
    instruction: str
    success: bool
    steps: int
    chunks: int
    seconds: float
    carried: bool


class Episode:
    """One episode: at most ``MAX_STEPS`` control steps after ``begin``.

    Attributes:
        steps: Control steps done.
        film: Control steps done and the frame seen then, every ``keep_every`` steps and at the end.
        states: Joint positions at the start and after every step, rad.
        recording: Receives every frame and command while it is set.
    """

    def __init__(self, sim: SimNode, policy: PolicyClient, seed: int, keep_every: int = 4):
        self._sim, self._policy = sim, policy
        self.seed = seed
        self.steps = 0
        self.film: list[tuple[int, Frame]] = []
        self.states: list[np.ndarray] = []
        self.recording: Recording | None = None
        self._keep_every = keep_every
        self._not_before_ns = 0
        self._at_last_row = False
        self._started = time.monotonic()
        self._chunk_ids: set[int] = set()

    def begin(self) -> None:
        """Place the scene, give the instruction, show the first frame."""
        sim = self._sim
        seen = sim.task.reset(self.seed)
        sim.publish_prompt(seen.instruction)
        self._policy.wait_for_prompt(seen.instruction)
        self.states.append(seen.state)
        self.resume()

    def resume(self) -> None:
        """Show the arm's present view; commands older than this are ignored."""
        self._sim.drop_commands()
        self._show()
        self._not_before_ns = self._last.stamp_ns

    @property
    def over(self) -> bool:
        """Solved, or out of steps."""
        return self._sim.task.succeeded or self.steps >= MAX_STEPS

    def step(self) -> None:
        """Wait for one command, move, and publish the new frame."""
        self._move()
        self._show()

    def _move(self) -> None:
        command = self._sim.next_command(_COMMAND_TIMEOUT_S, self._not_before_ns)
        if command is None:
            raise PolicyError(f"no command within {_COMMAND_TIMEOUT_S:.0f} s{_why(self._policy)}")
        self._sim.task.step(command.target)
        self.steps += 1
        self.states.append(self._sim.task.state())
        newest = self._policy.newest_chunk()
        row = None if newest is None else row_of(command.target, as_chunk(newest), self._sim.wiring.limits)
        if newest is not None and row is not None:
            self._chunk_ids.add(newest.chunk_id)
        self._at_last_row = newest is not None and row == newest.execute_rows - 1
        if self.recording is not None:
            self.recording.commands.append(command.target)

    def run(self) -> None:
        """Step until the episode is over."""
        while not self.over:
            self.step()

    def run_to_boundary(self, chunks: int) -> bool:
        """Step until the last row of the ``chunks``-th chunk is executed, and do not publish what is seen then.

        The node now waits for that frame: no row is left to emit and no tick runs. False if the episode
        ended before.
        """
        while not self.over:
            self._move()
            if self._at_last_row and len(self._chunk_ids) >= chunks:
                return not self.over
            self._show()
        return False

    def result(self) -> EpisodeResult:
        """Summary so far."""
        task = self._sim.task
        return EpisodeResult(
            seed=self.seed,
            instruction=task.instruction,
            success=task.succeeded,
            steps=self.steps,
            chunks=len(self._chunk_ids),
            seconds=time.monotonic() - self._started,
            carried=task.carried,
        )

    def _show(self) -> None:
        self._last = self._sim.publish_observation(self._sim.task.observe())
        if self.recording is not None:
            self.recording.frames.append(self._last)
        if self.steps % self._keep_every == 0 or self.over:
            self.film.append((self.steps, self._last))


def _why(policy: PolicyClient) -> str:
    status = policy.status
    if status is None:
        return "; the node published no status"
    text = f"; the node is {status.state}, chunk {status.chunk_state}"
    if status.last_refusal:
        text += f", last tick refused: {status.last_refusal}"
    return text + (f", error: {status.error}" if status.error else "")
