"""Makes the scripts of ``tools/policy`` importable, and shares one simulator."""

import sys
from pathlib import Path

import pytest

POLICY_TOOLS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(POLICY_TOOLS))


@pytest.fixture(scope="session")
def repository() -> Path:
    return POLICY_TOOLS.parents[1]


@pytest.fixture(scope="session")
def task():
    from so101 import Task

    made = Task(hz=10, image_size=96)
    yield made
    made.close()
