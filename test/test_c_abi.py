"""What colcon installs of the C ABI, in the sourced workspace."""

import os
import pathlib
import subprocess
import sys

from support.deployment import PREFIX

CONSUMER = pathlib.Path(__file__).resolve().parents[1] / 'src/capi/ctests/consumer'


def test_a_cmake_project_finds_the_installed_package(tmp_path):
    for command in [
        ['cmake', '-S', CONSUMER, '-B', tmp_path, f'-DCMAKE_PREFIX_PATH={PREFIX}', '-DFLASHRT_WANTED=0.1'],
        ['cmake', '--build', tmp_path],
        ['ctest', '--test-dir', tmp_path, '--output-on-failure'],
    ]:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout


def test_a_c_program_finds_the_installed_library_and_runs(tmp_path):
    source = tmp_path / 'host.c'
    source.write_text('#include <stdio.h>\n#include "flashrt/exec.h"\nint main(void) { return puts(frt_version()) < 0; }\n')
    program = tmp_path / 'host'
    lib = pathlib.Path(PREFIX) / 'lib'
    subprocess.run(['cc', '-Wall', '-Wextra', '-Werror', source, '-I', lib.parent / 'include', '-L', lib, '-lflashrt_exec', '-o', program],
                   check=True)
    environment = {**os.environ, 'LD_LIBRARY_PATH': f'{lib}:{os.environ.get("LD_LIBRARY_PATH", "")}'}
    assert subprocess.run([program], env=environment, capture_output=True, text=True).stdout == '0.1.0\n'
    for file in ['libflashrt_runtime.so', 'libcapsule_core.so', 'libflashrt.a', 'pkgconfig/flashrt.pc', 'cmake/flashrt/flashrtConfig.cmake']:
        assert (lib / file).exists(), file


def test_the_python_package_is_importable_and_takes_the_installed_library():
    program = 'import flashrt_runtime as rt; print(rt.__file__, rt._library.lib._name, rt.__version__, sep="\\n")'
    environment = {name: value for name, value in os.environ.items() if name not in ('LD_LIBRARY_PATH', 'FLASHRT_LIBRARY')}
    told = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, env=environment)
    assert told.returncode == 0, told.stderr
    package, library, version = told.stdout.split()
    assert pathlib.Path(PREFIX) in pathlib.Path(package).parents
    assert (library, version) == (str(pathlib.Path(PREFIX) / 'lib' / 'libflashrt.so.0'), '0.1.0')
