#!/usr/bin/env bash
# Installs the C ABI below PREFIX: lib/libflashrt.so with the names that existing builds look for, lib/libflashrt.a,
# include/, pkg-config and CMake files, and the Python package flashrt_runtime. What it writes names no absolute path: the
# prefix may be moved.
# Usage: install.sh [--from FOLDER] [--python FOLDER] PREFIX
#   --from FOLDER    cargo's output folder, such as target/release; without it, cargo builds the release profile
#   --python FOLDER  where Python looks for packages, below PREFIX and at most four folders deep; lib/python3/site-packages
#   FLASHRT_STRIP=0  leaves the debug information in (tens of MB)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

from= python=lib/python3/site-packages
while :; do
  case ${1:-} in
    --from) from=${2:?install.sh: --from needs a folder}; shift 2 ;;
    --python) python=${2:?install.sh: --python needs a folder}; shift 2 ;;
    *) break ;;
  esac
done
if [ $# != 1 ] || [ -z "$1" ] || [ "${1#-}" != "$1" ]; then echo "usage: install.sh [--from FOLDER] [--python FOLDER] PREFIX" >&2; exit 2; fi
prefix=$1

if [ -z "$from" ]; then
  target=${CARGO_TARGET_DIR:-$root/target}
  (cd "$root" && CARGO_TARGET_DIR=$target cargo build --locked --release --package flashrt-capi --lib)
  from=$target/release
fi
for file in libflashrt_capi.so libflashrt_capi.a; do
  [ -f "$from/$file" ] || { echo "install.sh: $from/$file is missing: cargo build --release -p flashrt-capi --lib" >&2; exit 1; }
done

version=$(sed -nE '/^\[workspace\.package\]/,/^\[/ s/^version = "([^"]+)"$/\1/p' "$root/Cargo.toml")
[ -n "$version" ] || { echo "install.sh: no workspace version in Cargo.toml" >&2; exit 1; }
# What Rust's standard library needs from the system when it is linked statically.
private=(gcc_s util rt pthread m dl)

lib=$prefix/lib include=$prefix/include source=$root/src/capi
mkdir -p "$lib/pkgconfig" "$lib/cmake/flashrt" "$include/flashrt" "$include/capsule"

# put MODE FROM TO: under a name of its own first, so that a program that runs the old file keeps it.
put() {
  install -m "$1" "$2" "$3.new"
  if [ "${FLASHRT_STRIP:-1}" != 0 ] && command -v strip >/dev/null; then strip --strip-debug "$3.new"; fi
  mv -f "$3.new" "$3"
}
put 755 "$from/libflashrt_capi.so" "$lib/libflashrt.so.$version"
put 644 "$from/libflashrt_capi.a" "$lib/libflashrt.a"
ln -sfn "libflashrt.so.$version" "$lib/libflashrt.so.0"
ln -sfn libflashrt.so.0 "$lib/libflashrt.so"
for name in flashrt_exec flashrt_runtime capsule_core; do
  ln -sfn libflashrt.so.0 "$lib/lib$name.so"
  ln -sfn libflashrt.a "$lib/lib$name.a"
done

install -m 644 "$source"/include/flashrt/*.h "$include/flashrt/"
install -m 644 "$source"/include/capsule/*.h "$include/capsule/"

package=$prefix/$python/flashrt_runtime
mkdir -p "$package"
install -m 644 "$source"/python/flashrt_runtime/*.py "$package/"

# pc NAME DESCRIPTION
pc() {
  sed -e "s|@NAME@|$1|" -e "s|@LINK@|$1|" -e "s|@DESCRIPTION@|$2|" -e "s|@VERSION@|$version|" \
    -e "s|@PRIVATE@|${private[*]/#/-l}|" "$source/packaging/flashrt.pc.in" >"$lib/pkgconfig/$1.pc"
}
pc flashrt "C ABI of flashrt: execution, runtime export, capsules"
pc flashrt_exec "Execution contract: contexts, buffers, graphs, plans (flashrt/exec.h)"
pc flashrt_runtime "Runtime export and model runtime (flashrt/runtime.h, flashrt/model_runtime.h)"
pc capsule_core "Frozen execution state (capsule/capsule.h)"

libraries=$(IFS=';'; echo "${private[*]}")
sed "s|@CMAKE_PRIVATE@|$libraries|" "$source/packaging/flashrtConfig.cmake" >"$lib/cmake/flashrt/flashrtConfig.cmake"
sed "s|@VERSION@|$version|" "$source/packaging/flashrtConfigVersion.cmake" >"$lib/cmake/flashrt/flashrtConfigVersion.cmake"
echo "install.sh: flashrt $version in $prefix"
