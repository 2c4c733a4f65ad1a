import numpy as np
import pytest
from so101 import COLORS, VIEWS, Task
from so101.expert import Expert


def follow(task: Task, targets) -> list:
    """Everything observable after each step."""
    seen = []
    for target in targets:
        success = task.step(target)
        images = task.observe().images.tobytes()
        seen.append((success, task.data.qpos.tobytes(), task.data.qvel.tobytes(), task.block.tobytes(), images))
    return seen


@pytest.fixture()
def grasp(task):
    """An instant with contacts: the expert has just lifted the cube."""
    task.reset(5)
    expert = Expert(task)
    while not task.carried:
        task.step(expert.act())
    rng = np.random.default_rng(0)
    return task.snapshot(), [task.state() + rng.normal(0, 0.05, 6) for _ in range(20)]


def test_reset_is_a_function_of_the_seed(task):
    first = task.reset(11)
    task.reset(12)
    again = task.reset(11)
    assert first.instruction == again.instruction
    assert first.state.tobytes() == again.state.tobytes()
    assert first.images.tobytes() == again.images.tobytes()
    assert first.images.shape == (len(VIEWS), 96, 96, 3) and first.images.dtype == np.uint8
    assert first.images.std() > 10


def test_restore_repeats_states_and_images_exactly(task, grasp):
    snapshot, targets = grasp
    task.restore(snapshot)
    first = follow(task, targets)
    task.reset(99)
    task.restore(snapshot)
    assert task.snapshot() == snapshot
    assert follow(task, targets) == first


def test_restore_into_another_instance(task, grasp):
    snapshot, targets = grasp
    task.restore(snapshot)
    first = follow(task, targets)
    other = Task(hz=10, image_size=96)
    other.restore(snapshot)
    assert other.instruction == task.instruction and other.carried
    assert follow(other, targets) == first
    other.close()


def test_expert_resumes_exactly_after_restore(task):
    task.reset(6, render=False)
    expert = Expert(task)
    for _ in range(12):
        task.step(expert.act())
    snapshot = task.snapshot()
    first = Expert(task)
    first.take_over()
    targets = first.act()
    task.step(targets)
    task.restore(snapshot)
    second = Expert(task)
    second.take_over()
    assert second.act().tobytes() == targets.tobytes()


def test_instruction_names_the_goal_pad(task):
    for seed in range(5):
        seen = task.reset(seed)
        assert seen.instruction == f"put the cube on the {COLORS[task.target]} pad"
        assert task.other != task.target


@pytest.mark.parametrize("seed", range(3))
def test_expert_solves(task, seed):
    task.reset(seed, render=False)
    expert = Expert(task)
    for _ in range(130):
        if task.step(expert.act()):
            break
    assert task.succeeded


@pytest.mark.parametrize("steps", [10, 25, 40])
def test_expert_takes_over(task, steps):
    task.reset(7, render=False)
    expert = Expert(task)
    for _ in range(steps):
        task.step(expert.act() + np.array([0.04, 0.03, -0.03, 0.02, 0.0, 0.0]))
    expert = Expert(task)
    expert.take_over()
    for _ in range(110):
        if task.step(expert.act()):
            break
    assert task.succeeded


def test_doing_nothing_fails(task):
    seen = task.reset(0)
    assert not any(task.step(seen.state) for _ in range(20))
    assert not task.succeeded
