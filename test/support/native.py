"""The example producers: where they are, a deployment with one, and what it must answer."""

import os
import pathlib
import subprocess

import numpy as np
import yaml

from .deployment import JOINTS, PREFIX
from .robot import picture

ROOT = pathlib.Path(__file__).resolve().parents[2]
HORIZON, DIM, SIDE = 4, 6, 8
PROMPT = 'lift the lid'


def _run(*command, **options):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    assert done.returncode == 0, f'{command}\n{done.stdout}'


def producers(folder):
    """{'c': library, 'rust': library}: the installed ones, else built in `folder` from the checkout."""
    installed = PREFIX / 'lib' / 'flashrt_ros' / 'examples'
    found = {'c': installed / 'libtoy_policy.so', 'rust': installed / 'librust_producer.so'}
    if all(path.is_file() for path in found.values()):
        return found
    target = ROOT / 'build' / 'flashrt_ros' / 'cargo'
    _run('cargo', 'build', '--locked', '--release', '--package', 'flashrt-capi', '--lib', '--example', 'rust_producer', cwd=ROOT,
         env={**os.environ, 'CARGO_TARGET_DIR': str(target)})
    library = folder / 'libflashrt.so.0'
    library.write_bytes((target / 'release' / 'libflashrt_capi.so').read_bytes())
    c = folder / 'libtoy_policy.so'
    _run('cc', '-std=c11', '-O1', '-shared', '-fPIC', '-fvisibility=hidden', ROOT / 'src/capi/examples/c_producer/toy_policy.c',
         '-I', ROOT / 'src/capi/include', '-o', c, library, '-lm', f'-Wl,-rpath,{folder}')
    return {'c': c, 'rust': target / 'release' / 'examples' / 'librust_producer.so'}


def write(folder, library, name='native.yaml', **config):
    """Writes a deployment with this library and returns its path: ticks on request, everything patient."""
    deployment = {
        'model': {'library': str(library), 'config': {'seed': 2, **config}},
        'ports': {
            'images': [{'view': 'front', 'topic': 'camera/workspace/image', 'max_age_ms': 60000}],
            'state': {'topic': 'joint_states', 'max_age_ms': 60000, 'joints': [{'name': joint} for joint in JOINTS]},
            'prompt': {'text': PROMPT},
        },
        'tick': {'mode': 'trigger', 'deadline_ms': 'off'},
        'chunk': {'control_rate_hz': 10},
        'command': {'topic': 'joint_command', 'limits': 'off', 'max_step': 'off'},
    }
    path = pathlib.Path(folder) / name
    path.write_text(yaml.safe_dump(deployment, sort_keys=False))
    return path


class Oracle:
    """The policy by its description in toy_policy.c; noise is kept as whole 1024ths."""

    def __init__(self, seed=2):
        self.noise = (seed * 31 + 7 * np.arange(HORIZON * DIM)) % 1024
        self.prompt = PROMPT

    def tick(self, number, positions):
        """[HORIZON, DIM] f32 for picture `number` and these joints; draws new noise."""
        pixels = picture(number, 0)
        step = pixels.shape[0] // SIDE
        bright = np.float32(int(pixels[::step, ::step].astype(np.int64).sum()) % 256) / np.float32(256)
        words = sum((i + 1) * byte for i, byte in enumerate(self.prompt.encode()))
        word = np.float32(words % 1024) / np.float32(1024)
        state = np.asarray(positions, dtype=np.float64).astype(np.float32)
        noise = self.noise.astype(np.float32).reshape(HORIZON, DIM) / np.float32(1024)
        self.noise = (self.noise * 5 + np.arange(HORIZON * DIM) + 1) % 1024
        return ((state + bright) + word) + noise
