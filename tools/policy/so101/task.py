"""Closed-loop pick and place with a language instruction.

Physics, the success rule and the scripted expert's IK come from the package
``lerobot-env-so101``; this module adds the coloured pads, the cameras, joint
targets as actions, and exact snapshots.
"""

import io
from dataclasses import dataclass

import mujoco
import numpy as np
from lerobot_env_so101.pick_place_env import _MIN_CARRY_RISE, _SAMPLING_BOUNDS, SO101PickPlaceGymEnv

from .assets import PAD_HALF_HEIGHT_M, twin_scene

COLORS = ("red", "green", "blue")
VIEWS = ("ws", "wrist")
JOINTS = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")

_PHYSICS_DT = 0.002
# The expert moves at most this far per second of control, in metres.
EXPERT_SPEED = 0.25
_START_NOISE_RAD = 0.08
_MIN_CUBE_PAD_M = 0.08
_MIN_PAD_PAD_M = 0.075
_HIDDEN = (0.0, 0.0, -5.0)
_STATE = mujoco.mjtState.mjSTATE_INTEGRATION


@dataclass(frozen=True)
class Observation:
    """What a policy may see at one instant.

    Attributes:
        images: ``(view, height, width, rgb)``, uint8, views in the order of ``VIEWS``.
        state: The six joint positions in rad, float32, in the order of ``JOINTS``.
        instruction: For example "put the cube on the red pad".
    """

    images: np.ndarray
    state: np.ndarray
    instruction: str


class Task:
    """One simulated arm, one cube, two pads, one instruction.

    Attributes:
        instruction: The current episode's instruction.
        target: Index in ``COLORS`` of the pad that the instruction names.
        other: Index in ``COLORS`` of the other visible pad.
        succeeded: Whether any step of this episode met the success rule.
    """

    def __init__(self, hz: float = 10.0, image_size: int = 96):
        """Load the models; nothing is placed before ``reset``.

        Args:
            hz: Control steps per simulated second. The shipped policy acts at 10.
            image_size: Height and width of both views in pixels, at most 640.
        """
        self.hz = hz
        self.image_size = image_size
        self.substeps = max(1, round(1.0 / (hz * _PHYSICS_DT)))
        self.env = SO101PickPlaceGymEnv(
            control_dt=1.0 / hz,
            physics_dt=_PHYSICS_DT,
            random_block_position=True,
            action_scale=EXPERT_SPEED / hz,
        )
        self.model, self.data = self.env.model, self.env.data
        self._joint_adr = [self.model.joint(name).qposadr[0] for name in JOINTS]
        self._target_range = self.model.actuator_ctrlrange.copy()

        self._twin = mujoco.MjModel.from_xml_path(str(twin_scene()))
        self._twin_data = mujoco.MjData(self._twin)
        self._pads = [self._twin.geom(f"pad_{name}").id for name in COLORS]
        self._renderer: mujoco.Renderer | None = None
        self._scene_option = mujoco.MjvOption()
        self._scene_option.geomgroup[3] = 0

        self.target = self.other = 0
        self.instruction = ""
        self.succeeded = False

    def reset(self, seed: int, render: bool = True) -> Observation | None:
        """Place arm, cube and pads; everything follows from ``seed``.

        Returns the first observation, or None without ``render``.
        """
        rng = np.random.default_rng(seed)
        self.env.reset(seed=int(seed))
        arm = self._joint_adr[:5]
        self.data.qpos[arm] += rng.uniform(-_START_NOISE_RAD, _START_NOISE_RAD, 5)
        self.data.qpos[self._joint_adr[5]] = rng.uniform(0.0, 1.0)
        self.data.ctrl[:] = self.data.qpos[self._joint_adr]
        cube, *pads = self._draw_places(rng)
        colors = rng.permutation(len(COLORS))[:2]
        self.place(cube, pads, colors)
        return self.observe() if render else None

    def set_joints(self, state) -> None:
        """Put the joints at these six angles in rad, within their ranges, at rest."""
        limits = self.model.jnt_range[[self.model.joint(name).id for name in JOINTS]]
        self.data.qpos[self._joint_adr] = np.clip(state, limits[:, 0], limits[:, 1])
        self.data.qvel[:] = 0.0
        self.data.ctrl[:] = self.data.qpos[self._joint_adr]

    def place(self, cube, pads, colors) -> None:
        """Start an episode with the cube and the pads at these table positions.

        The first pad is the goal. The arm keeps its joint positions.
        """
        env = self.env
        self.data.jnt("block").qpos[:] = (*cube, env._block_z, 1, 0, 0, 0)
        env._goal_pos = np.array([*pads[0], env._block_z])
        self._twin.geom_pos[self._pads] = _HIDDEN
        for color, xy in zip(colors, pads, strict=True):
            self._twin.geom_pos[self._pads[color]] = (*xy, PAD_HALF_HEIGHT_M)
        self.target, self.other = int(colors[0]), int(colors[1])
        self.instruction = f"put the cube on the {COLORS[self.target]} pad"
        self.succeeded = False
        mujoco.mj_forward(self.model, self.data)
        self.sync_expert()
        env._z_init = float(self.block[2])
        env._was_carried = False

    def step(self, targets) -> bool:
        """Drive the joints towards ``targets`` (six angles in rad) for one control step.

        Targets are clipped to the joint ranges. Returns whether the success rule
        holds at the end of this step; ``succeeded`` remembers it.
        """
        self.data.ctrl[:] = np.clip(targets, self._target_range[:, 0], self._target_range[:, 1])
        mujoco.mj_step(self.model, self.data, self.substeps)
        self._refresh()
        env = self.env
        env._was_carried = env._was_carried or bool(self.block[2] - env._z_init > _MIN_CARRY_RISE)
        success = env._is_success()
        self.succeeded = self.succeeded or success
        return success

    def observe(self) -> Observation:
        """Render both views and read the joints."""
        if self._renderer is None:
            self._renderer = mujoco.Renderer(self._twin, self.image_size, self.image_size)
        self._twin_data.qpos[:] = self.data.qpos
        mujoco.mj_kinematics(self._twin, self._twin_data)
        mujoco.mj_camlight(self._twin, self._twin_data)
        images = np.empty((len(VIEWS), self.image_size, self.image_size, 3), np.uint8)
        for view, out in zip(VIEWS, images, strict=True):
            self._renderer.update_scene(self._twin_data, camera=view, scene_option=self._scene_option)
            flags = self._renderer.scene.flags
            flags[mujoco.mjtRndFlag.mjRND_SHADOW] = 0
            flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = 0
            self._renderer.render(out=out)
        return Observation(images, self.state(), self.instruction)

    def state(self) -> np.ndarray:
        """The six joint positions in rad, float32."""
        return self.data.qpos[self._joint_adr].astype(np.float32)

    @property
    def time(self) -> float:
        """Simulated seconds since the reset."""
        return float(self.data.time)

    @property
    def block(self) -> np.ndarray:
        """Position of the cube's centre in the world, in metres."""
        return self.data.sensor("block_pos").data

    @property
    def goal(self) -> np.ndarray:
        """Where the cube's centre should rest, in metres."""
        return self.env.goal_pos

    @property
    def carried(self) -> bool:
        """Whether the cube was lifted at some step of this episode."""
        return self.env._was_carried

    def snapshot(self) -> bytes:
        """The complete state of the simulator and the episode.

        After ``restore`` of it, the same targets give the same states bit for bit
        and the same images byte for byte, in this process or in another one with
        the same packages and renderer.
        """
        physics = np.empty(mujoco.mj_stateSize(self.model, _STATE))
        mujoco.mj_getState(self.model, self.data, physics, _STATE)
        env = self.env
        out = io.BytesIO()
        np.savez(
            out,
            physics=physics,
            pads=self._twin.geom_pos[self._pads],
            colors=np.array([self.target, self.other]),
            goal=env._goal_pos,
            z_init=env._z_init,
            flags=np.array([env._was_carried, self.succeeded, env._last_action_was_zero]),
            expert=env._target_ee_pos,
        )
        return out.getvalue()

    def restore(self, snapshot: bytes) -> None:
        """Return to the instant at which ``snapshot`` was taken."""
        with np.load(io.BytesIO(snapshot)) as saved:
            mujoco.mj_resetData(self.model, self.data)
            mujoco.mj_setState(self.model, self.data, saved["physics"], _STATE)
            self._refresh()
            self._twin.geom_pos[self._pads] = saved["pads"]
            self.target, self.other = map(int, saved["colors"])
            env = self.env
            env._goal_pos = saved["goal"]
            env._z_init = float(saved["z_init"])
            env._was_carried, self.succeeded, env._last_action_was_zero = map(bool, saved["flags"])
            env._target_ee_pos = saved["expert"]
        self.instruction = f"put the cube on the {COLORS[self.target]} pad"

    def sync_expert(self) -> None:
        """Let the expert's Cartesian target start from where the arm is now."""
        self.env._target_ee_pos = self.env.ik_point_pos
        self.env._last_action_was_zero = False

    def close(self) -> None:
        """Free the renderer."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _refresh(self) -> None:
        """Derive positions and sensors from the state, leaving the state as it is.

        A physics step leaves them as of its start, which a restored state could
        not reproduce. The solver's warm start is part of the state: keep it.
        """
        warm = self.data.qacc_warmstart.copy()
        mujoco.mj_forward(self.model, self.data)
        self.data.qacc_warmstart[:] = warm

    @staticmethod
    def _draw_places(rng: np.random.Generator) -> np.ndarray:
        """Table positions of cube, goal pad and other pad, apart from each other."""
        while True:
            places = rng.uniform(*_SAMPLING_BOUNDS, size=(3, 2))
            gap = np.linalg.norm(places[:, None] - places[None], axis=-1)
            if min(gap[0, 1], gap[0, 2]) > _MIN_CUBE_PAD_M and gap[1, 2] > _MIN_PAD_PAD_M:
                return places
