#!/usr/bin/env python3
"""Compiles every kernels/*.cu for every architecture that we support, without a GPU, and prints what each kernel takes.

    check.py            fails on a warning, on a spill beyond the file's budget, and if its own controls pass
    check.py --nvrtc    prints the path of NVRTC, for the tests that compile as the product does
    check.py --ptx      writes src/exec/src/cuda/gather.ptx, the one kernel that is committed compiled; without it, it is compared

A file may allow a kernel to spill by a line such as `// spills <= 16 bytes: rms_norm_f32: why`. The compiler comes from wheels
(requirements.txt) into .cuda/ below the checkout.
"""

import concurrent.futures
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
VENV = ROOT / '.cuda'
ARCHS = ['sm_87', 'sm_89', 'sm_90', 'sm_110', 'sm_120']
#: As in src/ops/src/cuda/nvrtc.rs, and warnings as errors.
OPTIONS = ['-cubin', '-std=c++17', '--fmad=false', '-Xptxas', '-v', '-Werror', 'all-warnings']
#: Must not compile: a variable that nobody uses.
WARNS = 'extern "C" __global__ void warns(int* out) { int unused = 1; *out = 2; }'
#: Must be found: 64 values live at once in 32 registers.
SPILLS = """extern "C" __global__ void __maxnreg__(32) spills(float* x) {
  float v[64];
  for (int i = 0; i < 64; i++) v[i] = x[i * 32 + threadIdx.x];
  __syncthreads();
  for (int i = 0; i < 64; i++) x[threadIdx.x * 64 + i] = v[63 - i] * v[i];
}"""


def folder_of(name):
    """The folder of the wheels with this file."""
    found = sorted(VENV.glob(f'lib/python3*/site-packages/nvidia/cu13/{name}'))
    return found[0] if found else None


def make_compiler():
    stamp = VENV / 'stamp'
    wanted = hashlib.sha256((HERE / 'requirements.txt').read_bytes()).hexdigest()
    if not (stamp.exists() and stamp.read_text() == wanted):
        print('kernels: the CUDA compiler from wheels into .cuda (some 100 MB)', file=sys.stderr, flush=True)
        subprocess.run([sys.executable, '-m', 'venv', '--clear', VENV], check=True)
        subprocess.run([VENV / 'bin/pip', 'install', '--quiet', '--disable-pip-version-check', '-r', HERE / 'requirements.txt'],
                       check=True, stdout=sys.stderr)
        stamp.write_text(wanted)
    return folder_of('bin/nvcc'), folder_of('lib/libnvrtc.so.13')


def compile_file(nvcc, source, arch):
    """(kernels, error): per kernel its registers, shared bytes and spilled bytes; or what the compiler said."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([nvcc, *OPTIONS, f'-arch={arch}', '-o', Path(folder) / 'out.cubin', source], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        return {}, done.stdout.strip()
    kernels = {}
    for name, text in re.findall(r"Compiling entry function '(\w+)' for '\w+'\n(.*?)(?=ptxas info\s+: Compil|\Z)", done.stdout, re.S):
        spilled = sum(int(n) for n in re.findall(r'(\d+) bytes spill (?:stores|loads)', text))
        registers = int(re.search(r'Used (\d+) registers', text).group(1))
        shared = re.search(r'(\d+) bytes smem', text)
        kernels[name] = (registers, int(shared.group(1)) if shared else 0, spilled)
    if not kernels:
        return {}, f'no kernel found in what the compiler said:\n{done.stdout}'
    return kernels, None


def make_ptx(nvcc):
    """gather.cu in the assembly of an old language version, which every driver of CUDA 12 compiles."""
    source = ROOT / 'src/exec/src/cuda/gather.cu'
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / 'gather.ptx'
        subprocess.run([nvcc, '--ptx', '-arch=compute_80', '-std=c++17', '-Werror', 'all-warnings', '-o', made, source], check=True)
        text = made.read_text()
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith('//')]
    return re.sub(r'(?m)^\.version .*$', '.version 7.7', '\n'.join(lines)) + '\n', source.with_suffix('.ptx')


def budgets(source):
    return {name: int(n) for n, name in re.findall(r'^// spills <= (\d+) bytes: (\w+):', source.read_text(), re.M)}


def controls(nvcc):
    """Failures of the check itself."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in ('warns', WARNS), ('spills', SPILLS):
            source = Path(folder) / f'{name}.cu'
            source.write_text(text)
            kernels, error = compile_file(nvcc, source, 'sm_90')
            if name == 'warns' and error is None:
                yield 'control: a warning went through'
            if name == 'spills' and (error is not None or kernels['spills'][2] == 0):
                yield f'control: a spill was not seen: {error or kernels}'


def main():
    nvcc, nvrtc = make_compiler()
    if sys.argv[1:] == ['--nvrtc']:
        print(nvrtc)
        return 0
    ptx, ptx_path = make_ptx(nvcc)
    if sys.argv[1:] == ['--ptx']:
        ptx_path.write_text(ptx)
        return 0
    sources = sorted((ROOT / 'kernels').glob('*.cu'))
    jobs = [(source, arch) for source in sources for arch in ARCHS]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda job: compile_file(nvcc, *job), jobs))
    failures, table = list(controls(nvcc)), {}
    if ptx_path.read_text() != ptx:
        failures.append(f'{ptx_path.relative_to(ROOT)} is not what its source gives: tools/kernels/check.py --ptx')
    for (source, arch), (kernels, error) in zip(jobs, results):
        if error:
            failures.append(f'{source.name} for {arch}:\n{error}')
        allowed = budgets(source)
        for name, (registers, shared, spilled) in kernels.items():
            table.setdefault((source.name, name), {})[arch] = f'{registers}/{shared}/{spilled}'
            if spilled > allowed.get(name, 0):
                failures.append(f'{source.name} for {arch}: {name} spills {spilled} bytes, at most {allowed.get(name, 0)} are allowed')
    print(f'{"registers/shared bytes/spilled bytes":48}' + ''.join(f'{arch:>14}' for arch in ARCHS))
    for (file, name), row in table.items():
        print(f'{file + " " + name:48}' + ''.join(f'{row.get(arch, "-"):>14}' for arch in ARCHS))
    for failure in failures:
        print(f'kernels: {failure}', file=sys.stderr)
    print(f'kernels: {len(table)} kernels in {len(sources)} files for {len(ARCHS)} architectures, {len(failures)} failures')
    return 1 if failures else 0


if __name__ == '__main__':
    sys.exit(main())
