#!/usr/bin/env python3
"""Everything that needs a CUDA device, in one call: tests, benches and the demo policy.

    gpu_suite.py pack DIR              builds it, without a GPU, into one folder of some 40 MB that needs no Rust
    DIR/gpu_suite.py run [OUT]         on the CUDA machine: runs it, writes OUT/*.json, OUT/logs and a summary; default DIR/out
    gpu_suite.py report OUT [PAGE]     writes the tables of docs/performance.md from what `run` wrote
    gpu_suite.py [OUT]                 all three on a machine that has both Rust and a GPU

`run` takes Python 3.9 and the NVIDIA driver; NVRTC and cuBLASLt for the kernels; PyTorch for the references, which are skipped
without it. `--only WORD` runs the steps whose name has the word. The exit code is 1 if a step failed.
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: Integration tests that run on the device, by package: names of test targets as regular expressions.
TESTS = {
    'flashrt-exec': r'conformance|cuda_.*',
    'flashrt-ops': r'.*',
    'flashrt-capsule': r'cuda_.*',
    'flashrt-models': r'cuda_.*',
    'flashrt-session': r'cuda_.*',
    'flashrt-capi': r'exec_(?!random).*',
}
#: Programs that print JSON, by package.
BENCHES = {
    'flashrt-exec': r'replay_floor',
    'flashrt-ops': r'gpu_bench_.*',
    'flashrt-capsule': r'gpu_bench_.*',
    'flashrt-capi': r'replay_abi',
}
#: Time limit of one step in seconds; a hanging device must not take the whole lease.
LIMIT_S = 180


# ---- pack --------------------------------------------------------------------------------------------------------------


def executables(root, *arguments):
    """Runs cargo; yields (package, kind, name, path) of every program that it built."""
    environment = {**os.environ, 'CARGO_PROFILE_RELEASE_STRIP': 'true', 'CARGO_PROFILE_RELEASE_DEBUG': '0',
                   'CARGO_PROFILE_BENCH_STRIP': 'true', 'CARGO_PROFILE_BENCH_DEBUG': '0'}
    environment.setdefault('CARGO_TARGET_DIR', str(root / 'target' / 'gpu'))
    command = ['cargo', *arguments, '--locked', '--message-format=json-render-diagnostics']
    built = subprocess.run(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get('reason') == 'compiler-artifact' and message.get('executable'):
            package = re.search(r'(flashrt-[a-z]+)[#@]|/(?P<folder>[a-z]+)#', message['package_id'])
            name = package.group(1) or 'flashrt-' + package.group('folder')
            yield name, message['target']['kind'][0], message['target']['name'], Path(message['executable'])


def pack(folder):
    root = HERE.parents[1]
    folder = Path(folder)
    if folder.exists():
        shutil.rmtree(folder)
    (folder / 'bin').mkdir(parents=True)
    packages = sorted(set(TESTS) | set(BENCHES))
    chosen = [argument for package in packages for argument in ('-p', package)]
    steps = []

    def take(step, package, name, path, **more):
        program = f'{package.removeprefix("flashrt-")}-{name}'
        shutil.copy2(path, folder / 'bin' / program)
        steps.append({'name': f'{step} {program}', 'argv': [f'bin/{program}', *more.pop('argv', [])], **more})

    for package, kind, name, path in executables(root, 'test', '--release', '--no-run', '--tests', *chosen):
        if kind == 'test' and re.fullmatch(TESTS.get(package, ''), name):
            take('test', package, name, path, kind='test')
    steps.sort(key=lambda step: step['name'])
    benches = [*executables(root, 'build', '--release', '--examples', *chosen),
               *executables(root, 'bench', '--no-run', '--bench', 'replay_abi', '-p', 'flashrt-capi')]
    for package, kind, name, path in sorted(benches):
        if kind in ('example', 'bench') and re.fullmatch(BENCHES.get(package, ''), name):
            take('bench', package, name, path, kind='bench', json=name)
    for script in sorted(HERE.glob('ref_*.py')):
        shutil.copy2(script, folder)
        steps.append({'name': f'reference {script.stem}', 'argv': ['python3', script.name], 'kind': 'bench', 'json': script.stem,
                      'needs': 'torch'})

    for _, kind, name, path in executables(root, 'build', '--release', '-p', 'flashrt-nodes', '--bin', 'flashrt'):
        if (kind, name) == ('bin', 'flashrt'):
            shutil.copy2(path, folder / 'bin')
    config = root / 'config'
    shutil.copytree(config / 'so101_policy', folder / 'config' / 'so101_policy')
    deployment = (config / 'so101_demo.yaml').read_text()
    (folder / 'config' / 'cpu.yaml').write_text(deployment)
    (folder / 'config' / 'cuda.yaml').write_text('backend: cuda\n' + re.sub(r'(?m)^backend:.*\n', '', deployment))
    for backend in ('cpu', 'cuda'):
        deployment = f'config/{backend}.yaml'
        steps.append({'name': f'policy describe {backend}', 'argv': ['bin/flashrt', 'describe', deployment], 'kind': 'command'})
        steps.append({'name': f'policy verify {backend}', 'argv': ['bin/flashrt', 'verify', deployment], 'kind': 'command'})
        for what in ('tick', 'capsule'):
            steps.append({'name': f'policy bench {what} {backend}', 'kind': 'bench', 'json': f'policy_{what}_{backend}',
                          'argv': ['bin/flashrt', 'bench', what, '--config', deployment, '--count', '1000', '--json']})

    commit = subprocess.run(['git', 'describe', '--always', '--dirty'], cwd=root, stdout=subprocess.PIPE, text=True)
    shutil.copy2(__file__, folder)
    manifest = {'commit': commit.stdout.strip() or 'unknown', 'steps': steps}
    (folder / 'manifest.json').write_text(json.dumps(manifest, indent=1))
    size = sum(file.stat().st_size for file in folder.rglob('*') if file.is_file())
    print(f'gpu_suite: {len(steps)} steps, {size / 2**20:.0f} MiB in {folder}')


# ---- run ---------------------------------------------------------------------------------------------------------------


def query_device():
    """What nvidia-smi says of device 0; empty without it."""
    fields = ['name', 'driver_version', 'memory.total', 'clocks.sm', 'clocks.max.sm', 'clocks.mem', 'temperature.gpu', 'power.draw']
    try:
        answer = subprocess.run(['nvidia-smi', f'--query-gpu={",".join(fields)}', '--format=csv,noheader', '--id=0'],
                                stdout=subprocess.PIPE, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(zip(fields, (value.strip() for value in answer.stdout.split(','))))


def has_module(name):
    return subprocess.run(['python3', '-c', f'import {name}'], stderr=subprocess.DEVNULL).returncode == 0


def json_objects(text):
    """The objects of a bench's output: one document, or one object a line among other lines."""
    try:
        return [json.loads(text)]
    except ValueError:
        pass
    found = []
    for line in text.splitlines():
        if line.startswith('{'):
            try:
                found.append(json.loads(line))
            except ValueError:
                pass
    return found


def run_step(step, out):
    """Runs one step; its result with counts and seconds."""
    log = out / 'logs' / (re.sub(r'[^A-Za-z0-9_.-]+', '-', step['name']) + '.log')
    if step.get('needs') and not has_module(step['needs']):
        return {'name': step['name'], 'result': 'skipped', 'why': f'no Python module {step["needs"]}', 'seconds': 0}
    argv = step['argv'] + (['--nocapture', '--test-threads=1'] if step['kind'] == 'test' else [])
    start = time.monotonic()
    with open(log, 'w') as errors:
        try:
            done = subprocess.run(argv, cwd=HERE, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=LIMIT_S,
                                  env={**os.environ, 'FLASHRT_REQUIRE_CUDA': '1', 'FLASHRT_TEST_ROOT': str(HERE)})
            status, text = done.returncode, done.stdout
        except subprocess.TimeoutExpired as late:
            status, text = f'no end after {LIMIT_S} s', (late.stdout or b'').decode(errors='replace')
    result = {'name': step['name'], 'result': 'ok' if status == 0 else 'FAILED', 'seconds': round(time.monotonic() - start, 1)}
    told = log.read_text(errors='replace')
    log.write_text(f'$ {" ".join(argv)}\n{text}\n{told}\nexit: {status}\n')
    if step['kind'] == 'test':
        for word in ('passed', 'failed', 'ignored'):
            result[word] = sum(int(n) for n in re.findall(rf'(\d+) {word}', text))
        # Without a device tests fail here; what else they cannot do they say in a line, and return.
        result['skipped'] = len(re.findall(r'skipped: ', text + told))
    if step.get('json') and status == 0:
        objects = json_objects(text)
        if not objects:
            result['result'] = 'FAILED'
        (out / f'{step["json"]}.json').write_text(json.dumps(objects[0] if len(objects) == 1 else objects, indent=1))
    if result['result'] == 'FAILED':
        print('\n'.join((text + told).splitlines()[-40:]))
    return result


def run(out, only):
    manifest = json.loads((HERE / 'manifest.json').read_text())
    (out / 'logs').mkdir(parents=True, exist_ok=True)
    before = query_device()
    if not before:
        print('gpu_suite: nvidia-smi answers nothing: steps that need a GPU will skip or fail')
    results = []
    for step in manifest['steps']:
        if only and only not in step['name']:
            continue
        result = run_step(step, out)
        results.append(result)
        counts = ', '.join(f'{result[word]} {word}' for word in ('passed', 'failed', 'skipped') if result.get(word))
        print(f'{result["result"]:8} {result["seconds"]:6.1f} s  {step["name"]}{": " + counts if counts else ""}', flush=True)
    total = {word: sum(r.get(word, 0) for r in results) for word in ('passed', 'failed', 'skipped')}
    summary = {'commit': manifest['commit'], 'date': time.strftime('%Y-%m-%dT%H:%MZ', time.gmtime()), 'device': before,
               'device_after': query_device(), 'host': f'{platform.machine()}, {os.cpu_count()} cores, {" ".join(platform.libc_ver())}',
               'tests': total, 'steps': results}
    (out / 'summary.json').write_text(json.dumps(summary, indent=1))
    bad = [r['name'] for r in results if r['result'] == 'FAILED']
    print(f'gpu_suite: {total["passed"]} tests passed, {total["failed"]} failed, {total["skipped"]} skipped; '
          f'{len(bad)} of {len(results)} steps failed{": " + ", ".join(bad) if bad else ""}; results in {out}')
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('what', nargs='?', default='all', help='pack, run, report, or a folder for the results of all three')
    parser.add_argument('folders', nargs='*')
    parser.add_argument('--only', help='steps whose name has this word')
    given = parser.parse_args()
    if given.what == 'pack':
        pack(*given.folders)
    elif given.what == 'run':
        sys.exit(run(Path(given.folders[0] if given.folders else HERE / 'out').resolve(), given.only))
    elif given.what == 'report':
        import report

        report.write(*given.folders)
    else:
        folder = HERE.parents[1] / 'out' / 'gpu_suite'
        pack(folder)
        out = Path(folder.parent / 'gpu' if given.what == 'all' else given.what).resolve()
        only = ['--only', given.only] if given.only else []
        status = subprocess.run([sys.executable, folder / 'gpu_suite.py', 'run', str(out), *only]).returncode
        subprocess.run([sys.executable, HERE / 'gpu_suite.py', 'report', str(out)], check=True)
        sys.exit(status)


if __name__ == '__main__':
    main()
