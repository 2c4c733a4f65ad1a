"""What set_input gives a producer for each modality, and which payloads it refuses."""

import ctypes
import struct
import unittest

from support import Host, image, images, rt

RAW = ("tensor", "state", "action", "audio", "force")


class Payloads(unittest.TestCase):
    def setUp(self):
        self.got = []
        self.kept = []
        self.keep = lambda payload: None
        names = [*RAW, "text", "image", "depth"]
        self.port = {name: i for i, name in enumerate(names)}
        self.model = rt.build_metadata_model_runtime(
            identity={}, step=lambda: 0, set_input=self.set_input,
            ports=[rt.PortSpec(n, n, "u8", update="staged", shape=(-1,)) for n in names])
        self.host = Host(self.model)

    def tearDown(self):
        self.kept.clear()
        self.host.close()
        self.model.release()

    def set_input(self, port, payload, stream):
        self.kept.append(self.keep(payload))
        if isinstance(payload, memoryview):
            self.assertTrue(payload.readonly)
            payload = bytes(payload)
        if isinstance(payload, list):
            payload = [(v.pixel_format, v.width, v.height, v.stride_bytes, v.timestamp_ns, [bytes(r) for r in v.rows]) for v in payload]
        self.got.append(payload)

    def give(self, name, data, size=None):
        return self.host.set_input(self.port[name], data, size)

    def refused(self, code, words, name, data, size=None):
        before = len(self.got)
        self.assertEqual(self.give(name, data, size), code)
        self.assertIn(words, self.host.text())
        self.assertEqual(len(self.got), before, "the producer was called")

    def test_raw_modalities_are_bytes(self):
        data = struct.pack("<3f", 1.5, -2.0, 3.25)
        for name in RAW:
            self.assertEqual(self.give(name, data), 0)
            self.assertEqual(self.give(name, None), 0)
        self.assertEqual(self.got, [data, b""] * 5)
        self.refused(-1, "data is null with 4 bytes", "state", None, 4)
        self.refused(-1, "18446744073709551615 bytes", "state", b"x", 2**64 - 1)

    def test_text_is_a_str_and_bad_utf_8_is_minus_4(self):
        self.assertEqual(self.give("text", "pick the 红 cube".encode()), 0)
        self.assertEqual(self.give("text", None), 0)
        self.assertEqual(self.give("text", b"a\0b"), 0)
        self.assertEqual(self.got, ["pick the 红 cube", "", "a\0b"])
        self.refused(-4, "not UTF-8 at byte 2 of 3", "text", b"ab\xff")
        for bad in (b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe7\xba"):
            self.refused(-4, "not UTF-8", "text", bad)

    def test_images_are_rows_without_padding(self):
        padded = bytes(range(20))
        one = image(bytes(range(12)), 2, 2, stamp=99)
        two = image(padded, 2, 2, stride=10, pixel_format=4)
        self.assertEqual(self.give("image", images(one, two)), 0)
        self.assertEqual(self.got[0], [
            (rt.PixelFormat.RGB8, 2, 2, 6, 99, [bytes(range(6)), bytes(range(6, 12))]),
            (rt.PixelFormat.GRAY8, 2, 2, 10, 0, [padded[0:2], padded[10:12]]),
        ])
        self.assertEqual(self.give("image", None), 0)
        self.assertEqual(self.got[1], [])

    def test_a_depth_row_is_its_whole_stride(self):
        data = bytes(range(16))
        self.assertEqual(self.give("depth", images(image(data, 2, 2, stride=8, pixel_format=4))), 0)
        self.assertEqual(self.give("depth", images(image(data, 2, 2, pixel_format=4))), 0)
        self.assertEqual([r for v in self.got for r in v[0][5]], [data[:8], data[8:]] * 2)

    def test_views_that_break_a_rule(self):
        pixels = bytes(12)
        cases = (
            (-1, "struct_size expected at least 48, got 47", dict(struct_size=47)),
            (-1, "data is null", dict(data=None)),
            (-4, "pixel format expected 0 to 4, got 5", dict(pixel_format=5)),
            (-4, "expected a positive size, got 0 x 2", dict(width=0)),
            (-4, "expected a positive size, got 2 x -1", dict(height=-1)),
            (-4, "stride expected 0 or at least 6, got -6", dict(stride_bytes=-6)),
            (-4, "stride expected 0 or at least 6, got 5", dict(stride_bytes=5)),
            (-5, "2 rows of 6 bytes need 12, got 11", dict(bytes=11)),
            (-5, "2 rows of 7 bytes need 14, got 12", dict(stride_bytes=7)),
            (-5, "need", dict(width=2**31 - 1, height=2**31 - 1)),
        )
        for code, words, changes in cases:
            with self.subTest(changes):
                good, bad = image(pixels, 2, 2), image(pixels, 2, 2)
                for field, value in changes.items():
                    setattr(bad, field, value)
                self.refused(code, "image 1: ", "image", images(good, bad))
                self.assertIn(words, self.host.text())
        self.refused(-4, "whole image views of 48 bytes, got 47 bytes", "image", images(image(pixels, 2, 2)), 47)

    def test_larger_view_structs_are_taken(self):
        view = image(bytes(12), 2, 2)
        view.struct_size = 64
        self.assertEqual(self.give("image", images(view)), 0)

    def test_a_view_that_is_kept_is_told_and_ended(self):
        data = ctypes.create_string_buffer(b"abcdef", 6)
        self.keep = lambda payload: payload
        self.assertEqual(self.give("state", data), 0)
        with self.assertRaises(ValueError):
            bytes(self.kept[0])
        for part in (lambda p: p[1:3], lambda p: memoryview(p), lambda p: p.cast("B")):
            self.keep = part
            self.assertEqual(self.give("state", data), -1)
            self.assertIn("a view of the payload was kept", self.host.text())
        picture = images(image(bytes(12), 2, 2))
        self.keep = lambda payload: [row[0:1] for row in payload[0].rows]
        self.assertEqual(self.give("image", picture), -1)
        self.keep = lambda payload: payload
        self.assertEqual(self.give("image", picture), 0)
        with self.assertRaises(ValueError):
            bytes(self.kept[-1][0].rows[0])

    def test_a_failure_while_a_view_is_in_use_keeps_the_producers_text(self):
        def fail(payload):
            part = payload[0:2]
            raise RuntimeError(f"failed with {len(part)}")

        self.keep = fail
        self.assertEqual(self.give("state", b"abcd"), -1)
        self.assertIn("RuntimeError: failed with 2", self.host.text())


if __name__ == "__main__":
    unittest.main()
