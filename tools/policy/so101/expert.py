"""The scripted expert in joint space, able to take over at any moment.

The package's controller runs through phases from the start of an episode. To
label states that a policy reached by itself, ``Expert.take_over`` picks the phase
that fits what is happening now.
"""

import numpy as np
from lerobot_env_so101.scripted import pick_place
from lerobot_env_so101.scripted.pick_place import Phase, PickPlaceController

from .task import EXPERT_SPEED, Task

# The jaws close on the cube in three control steps at 10 Hz. The package waits ten;
# a shorter wait leaves a policy without memory less to guess.
_HOLD_STEPS = {Phase.CLOSE: 5, Phase.OPEN: 5}

_HELD_DISTANCE_M = 0.03
_CLOSED_COMMAND_RAD = 0.2
# Jaw angles: on nothing, on the cube (the pads are as far apart as it is wide), open.
_EMPTY_JAW_RAD = 0.3
_GRASP_JAW_RAD = 0.52
_OPEN_JAW_RAD = 0.8
_LIFTED_M = 0.012
_ABOVE_M = 0.006
_AT_GRASP_M = 0.006
_AT_GOAL_M = 0.006


class Expert:
    """Joint targets from the true positions of cube and goal."""

    def __init__(self, task: Task):
        self._task = task
        self._controller = PickPlaceController(EXPERT_SPEED / task.hz)
        self._controller._table_z = float(task.env._z_init)

    @property
    def phase(self) -> Phase:
        return self._controller.phase

    @property
    def done(self) -> bool:
        return self._controller.done

    def take_over(self) -> Phase:
        """Start in the phase that suits the present state."""
        self._task.sync_expert()
        self._controller._phase = self._suitable_phase()
        return self.phase

    def act(self) -> np.ndarray:
        """Advance by one control step; six joint targets in rad, float32."""
        task, env, data = self._task, self._task.env, self._task.data
        controller = self._controller
        if controller._steps_in_phase >= _HOLD_STEPS.get(controller._phase, np.inf):
            controller._steps_in_phase = pick_place._HOLD_STEPS[controller._phase]
        action = controller.act(env.ik_point_pos, task.block, task.goal)
        # The package solves its IK inside a step; with no substeps only the targets change.
        before, substeps = data.ctrl.copy(), env._n_substeps
        env._n_substeps = 0
        env.apply_action(action)
        env._n_substeps = substeps
        targets = data.ctrl.astype(np.float32)
        data.ctrl[:] = before
        return targets

    def _suitable_phase(self) -> Phase:
        task = self._task
        grasp, block, goal = task.env.ik_point_pos, task.block, task.goal
        table_z = task.env._z_init
        offset = grasp - block - [0.0, 0.0, pick_place.GRASP_HEIGHT]
        aligned = np.linalg.norm(offset[:2])
        to_goal = np.linalg.norm(block[:2] - goal[:2])
        jaw = task.state()[5]
        near = np.linalg.norm(offset) < _HELD_DISTANCE_M
        # Jaws told to close stop at the cube's faces, or go on to zero on nothing.
        gripping = near and task.data.ctrl[5] < _CLOSED_COMMAND_RAD and jaw > _EMPTY_JAW_RAD
        if gripping and block[2] - table_z > _LIFTED_M:
            if to_goal < _AT_GOAL_M:
                return Phase.LOWER
            high = grasp[2] > table_z + pick_place.GRASP_HEIGHT + 0.7 * pick_place.LIFT_HEIGHT
            return Phase.TRAVERSE if high else Phase.LIFT
        if to_goal < _AT_GOAL_M and task.carried and near:
            return Phase.OPEN
        if gripping:
            return Phase.LIFT if jaw < _GRASP_JAW_RAD else Phase.CLOSE
        if aligned < _AT_GRASP_M and abs(offset[2]) < _AT_GRASP_M:
            return Phase.CLOSE
        if aligned < _ABOVE_M and offset[2] > 0 and jaw > _OPEN_JAW_RAD:
            return Phase.DESCEND
        return Phase.HOVER
