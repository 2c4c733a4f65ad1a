"""Python producers of FlashRT model runtimes, over the C library and the standard library alone.

A producer captures graphs in an ExecContext and declares a model with build_model_runtime, or declares one without graphs with
build_metadata_model_runtime. What comes out is a native `frt_model_runtime_v1` that any host can tick, from any thread.

The C library is the file in FLASHRT_LIBRARY; otherwise the one that the process has loaded already, the one installed with this
package, the one that cargo built in this checkout, or what the dynamic loader finds, in this order.

While the interpreter shuts down (from the exit handlers on) verbs answer -6, and a release from native code only counts: what
is still referenced is left to the end of the process. Hosts stop ticking before the interpreter is gone.
"""

from ._callbacks import live_models
from ._library import LIBRARY_VARIABLE, FlashrtError, VerbStatusError, lib
from .context import Backend, Buffer, ExecContext, Graph, Recorder, Space
from .model import ModelRuntime, build_metadata_model_runtime, build_model_runtime, fingerprint
from .payload import ImageView
from .specs import (
    BufferSpec, Direction, DType, Executor, GenericStageSpec, GraphSpec, Layout, Modality, PixelFormat, PortSpec, Region,
    RegionSpec, Role, StageSpec, StreamSpec, Update,
)

#: Version of the C library.
__version__ = lib.frt_version().decode()

__all__ = [
    "Backend", "Buffer", "BufferSpec", "DType", "Direction", "ExecContext", "Executor", "FlashrtError", "GenericStageSpec",
    "Graph", "GraphSpec", "ImageView", "LIBRARY_VARIABLE", "Layout", "ModelRuntime", "Modality", "PixelFormat", "PortSpec",
    "Recorder", "Region", "RegionSpec", "Role", "Space", "StageSpec", "StreamSpec", "Update", "VerbStatusError",
    "build_metadata_model_runtime", "build_model_runtime", "fingerprint", "live_models",
]
