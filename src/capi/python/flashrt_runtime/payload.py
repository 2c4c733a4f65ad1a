"""Bytes of a host as Python objects for `set_input`, and what `get_output` gives as bytes.

Views are not copies: they are valid inside the callback only. What a producer keeps, it copies (`bytes(view)`).
"""

from __future__ import annotations

import ctypes
import sys
from typing import List, NamedTuple

from ._library import ImageViewStruct, VerbStatusError
from .specs import Modality, PixelFormat

_VIEW_BYTES = ctypes.sizeof(ImageViewStruct)
_IMAGES = (Modality.IMAGE, Modality.DEPTH)


class ImageView(NamedTuple):
    """One image of an IMAGE or DEPTH payload.

    `rows` has `height` views of one row each, without padding. In an IMAGE a row is `width` pixels of `pixel_format`; in a
    DEPTH image, whose pixels the format does not tell, it is the whole stride. `timestamp_ns` is the host's stamp.
    """

    pixel_format: PixelFormat
    width: int
    height: int
    stride_bytes: int
    timestamp_ns: int
    rows: List[memoryview]


class Views:
    """Memory of the host, lent to one callback."""

    def __init__(self):
        self._arrays = []
        self._views = []

    def of(self, address: int, size: int) -> memoryview:
        """A read-only view; `size` 0 reads nothing."""
        if size == 0:
            return memoryview(b"")
        if size > sys.maxsize:
            raise VerbStatusError(-1, f"payload: {size} bytes are more than memory can hold")
        lent = (ctypes.c_ubyte * size).from_address(address)
        with memoryview(lent) as whole, whole.cast("B") as plain:
            view = plain.toreadonly()
        self._arrays.append(lent)
        self._views.append(view)
        return view

    def rows(self, view: memoryview, stride: int, row: int, height: int) -> List[memoryview]:
        """Rows of an image."""
        rows = [view[y * stride : y * stride + row] for y in range(height)]
        self._views.extend(rows)
        return rows

    def take_back(self) -> bool:
        """Ends every view. False if the callback kept one, or a part of one, that can still read the memory."""
        for view in self._views:
            try:
                view.release()
            except BufferError:
                return False
        self._views.clear()
        # Parts hold the array as the views did. One reference is the list's, one the loop's, one the call's.
        for lent in self._arrays:
            if sys.getrefcount(lent) > 3:
                return False
        return True


def decode(what: str, modality: int, address, size: int, views: Views):
    """What a callback gets for a payload of `size` bytes at `address`. Raises VerbStatusError."""
    if size and not address:
        raise VerbStatusError(-1, f"{what}: data is null with {size} bytes")
    if modality in _IMAGES:
        return _images(what, modality, address, size, views)
    if modality == Modality.TEXT:
        data = ctypes.string_at(address, size) if size else b""
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise VerbStatusError(-4, f"{what}: not UTF-8 at byte {error.start} of {size}") from None
    return views.of(address, size)


def _images(what, modality, address, size, views) -> List[ImageView]:
    count, rest = divmod(size, _VIEW_BYTES)
    if rest:
        raise VerbStatusError(-4, f"{what}: expected whole image views of {_VIEW_BYTES} bytes, got {size} bytes")
    structs = (ImageViewStruct * count).from_address(address) if count else ()
    return [_image(f"{what}, image {i}", modality, image, views) for i, image in enumerate(structs)]


def _image(what, modality, image, views) -> ImageView:
    if image.struct_size < _VIEW_BYTES:
        raise VerbStatusError(-1, f"{what}: struct_size expected at least {_VIEW_BYTES}, got {image.struct_size}")
    if not image.data:
        raise VerbStatusError(-1, f"{what}: data is null")
    if image.pixel_format > PixelFormat.GRAY8:
        raise VerbStatusError(-4, f"{what}: pixel format expected 0 to 4, got {image.pixel_format}")
    width, height, stride = image.width, image.height, image.stride_bytes
    if width <= 0 or height <= 0:
        raise VerbStatusError(-4, f"{what}: expected a positive size, got {width} x {height}")
    pixel_format = PixelFormat(image.pixel_format)
    if modality == Modality.DEPTH:
        row = stride if stride > 0 else image.bytes // height
        least = 1
    else:
        row = least = width * pixel_format.channels
    if stride < 0 or (stride or row) < least:
        raise VerbStatusError(-4, f"{what}: stride expected 0 or at least {least}, got {stride}")
    stride = stride or row
    if image.bytes < stride * height:
        raise VerbStatusError(-5, f"{what}: {height} rows of {stride} bytes need {stride * height}, got {image.bytes}")
    pixels = views.of(image.data, stride * height)
    rows = views.rows(pixels, stride, row, height)
    return ImageView(pixel_format, width, height, stride, image.timestamp_ns, rows)


def encode(what: str, value) -> memoryview:
    """What a callback returned for an output, as contiguous bytes. Raises VerbStatusError."""
    if isinstance(value, str):
        try:
            value = value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise VerbStatusError(-4, f"{what}: the text is no UTF-8 at character {error.start}") from None
    try:
        view = memoryview(value)
    except TypeError:
        raise VerbStatusError(-1, f"{what}: expected bytes, a buffer or a str, got {_shown(value)}") from None
    if not view.c_contiguous:
        return memoryview(view.tobytes())
    return view.cast("B") if view.nbytes else memoryview(b"")


def _shown(value) -> str:
    return f"{value!r:.80} ({type(value).__name__})"
