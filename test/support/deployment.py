"""Deployment files for tests: the demo's, with changes."""

import copy
import pathlib

import yaml
from ament_index_python.packages import get_package_prefix, get_package_share_directory

SHARE = pathlib.Path(get_package_share_directory('flashrt_ros'))
PREFIX = pathlib.Path(get_package_prefix('flashrt_ros'))
DEMO_CONFIG = SHARE / 'config' / 'so101_demo.yaml'
JOINTS = ['shoulder_pan', 'shoulder_lift', 'elbow_flex', 'wrist_flex', 'wrist_roll', 'gripper']
VIEWS = ['workspace', 'wrist']
PROMPT = 'put the cube on the red pad'

# Tests put no trust in the speed of the machine that they run on: inputs may be old.
PATIENT = {
    'ports.images.0.max_age_ms': 60000,
    'ports.images.1.max_age_ms': 60000,
    'ports.state.max_age_ms': 60000,
    'sync.max_skew_ms': 'off',
    'tick.deadline_ms': 'off',
}


def demo():
    """The demo's deployment as nested dictionaries; its weights by absolute path."""
    config = yaml.safe_load(DEMO_CONFIG.read_text())
    config['model']['weights'] = str(DEMO_CONFIG.parent / config['model']['weights'])
    return config


def changed(config, changes):
    """A copy with values set, or removed where the value is None, by dotted path (numbers index lists)."""
    config = copy.deepcopy(config)
    for path, value in changes.items():
        *folders, last = [int(word) if word.isdigit() else word for word in path.split('.')]
        place = config
        for folder in folders:
            place = place[folder]
        if value is None:
            del place[last]
        else:
            place[last] = value
    return config


def write(folder, changes=(), name='deployment.yaml'):
    """Writes the demo's deployment, patient and with these changes, and returns its path."""
    path = pathlib.Path(folder) / name
    path.write_text(yaml.safe_dump(changed(demo(), {**PATIENT, **dict(changes)}), sort_keys=False))
    return path
