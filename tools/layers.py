#!/usr/bin/env python3
"""Checks the layers of ARCHITECTURE.md: crates depend downwards only, and ROS and CUDA stay where they belong.

Usage: tools/layers.py, from anywhere. Prints one line per fault; exit code 1 if there is any.
"""

import pathlib
import re
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Crate: the crates that it may depend on.
MAY_USE = {
    'exec': [],
    'ops': ['exec'],
    'runtime': ['exec'],
    'capsule': ['exec', 'runtime'],
    'models': ['exec', 'ops', 'runtime'],
    'session': ['exec', 'runtime', 'capsule', 'models'],
    'capi': ['exec', 'runtime', 'capsule'],
    'nodes': ['exec', 'runtime', 'capsule', 'models', 'session'],
}

# Crate that is not ours: the only crates of ours that may name it.
ONLY_IN = {
    'rclrs': ['nodes'],
    'ros-env': ['nodes'],
    'rosidl_runtime_rs': ['nodes'],
    'anyhow': ['nodes'],
    'cudarc': ['exec', 'ops'],
}

# Crates that hold no unsafe code, and say so to the compiler.
FORBID_UNSAFE = ['capsule', 'models', 'session', 'nodes']


def normal_dependencies(manifest):
    """Names in [dependencies], [build-dependencies] and the same of every target."""
    tables = [manifest] + list(manifest.get('target', {}).values())
    return {name for table in tables for kind in ('dependencies', 'build-dependencies') for name in table.get(kind, {})}


def crate_faults(crate):
    folder = ROOT / 'src' / crate
    if not (folder / 'Cargo.toml').is_file():
        return [f'{crate}: src/{crate}/Cargo.toml is missing']
    manifest = tomllib.loads((folder / 'Cargo.toml').read_text())
    faults = []
    for name in sorted(normal_dependencies(manifest)):
        if name.startswith('flashrt-') and name.removeprefix('flashrt-') not in MAY_USE[crate]:
            faults.append(f'{crate}: depends on {name}, which is not below it')
        if crate not in ONLY_IN.get(name, [crate]):
            faults.append(f'{crate}: depends on {name}, which belongs into {" or ".join(ONLY_IN[name])} only')
    if crate in FORBID_UNSAFE and '#![forbid(unsafe_code)]' not in (folder / 'src' / 'lib.rs').read_text():
        faults.append(f'{crate}: src/lib.rs does not forbid unsafe code')
    return faults


def workspace_faults():
    manifest = tomllib.loads((ROOT / 'Cargo.toml').read_text())
    members = {pathlib.PurePath(member).name for member in manifest['workspace']['members']}
    faults = [f'{name}: in the workspace, but has no layer in tools/layers.py' for name in sorted(members - MAY_USE.keys())]
    cargo = manifest['workspace']['package']['version']
    ros = re.search(r'<version>(.*?)</version>', (ROOT / 'package.xml').read_text()).group(1)
    if cargo != ros:
        faults.append(f'Cargo.toml has version {cargo}, package.xml {ros}')
    return faults


def main():
    faults = workspace_faults() + [fault for crate in MAY_USE for fault in crate_faults(crate)]
    for fault in faults:
        print(f'layers: {fault}')
    if not faults:
        print(f'layers: hold for {len(MAY_USE)} crates')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
