"""What a host sees of a producer's Python functions: statuses, texts and bytes."""

import array
import ctypes
import unittest

from support import Host, rt


def port(name, modality, direction, update="staged", dtype="u8"):
    return rt.PortSpec(name, modality, dtype, direction=direction, update=update, shape=(-1,))


class Callbacks(unittest.TestCase):
    def setUp(self):
        self.calls = []
        self.answer = None
        self.model = rt.build_metadata_model_runtime(
            identity={"model": "m"},
            ports=[port("state", "state", "in"), port("text", "text", "out"), port("knob", "tensor", "in", "setup")],
            set_input=self.call("set_input"), get_output=self.call("get_output"), prepare=self.call("prepare"),
            step=self.call("step"), run_opaque=self.call("run_opaque"),
            generic_stages=[rt.GenericStageSpec("infer", "opaque", 7)])
        self.host = Host(self.model)

    def tearDown(self):
        self.host.close()
        self.model.release()
        self.assertEqual(rt.live_models(), 0)

    def call(self, name):
        def function(*arguments):
            self.calls.append((name, *(bytes(a) if isinstance(a, memoryview) else a for a in arguments)))
            if isinstance(self.answer, BaseException):
                raise self.answer
            return self.answer

        return function

    def each(self):
        """Statuses of one call of every verb that returns a plain status."""
        return [self.host.set_input(0, b"ab"), self.host.prepare(3, 2**64 - 1), self.host.step(), self.host.run_opaque(7)]

    def test_arguments_arrive_and_none_and_zero_are_success(self):
        for self.answer in (None, 0):
            self.calls.clear()
            self.assertEqual(self.each(), [0] * 4)
            self.assertEqual(self.calls, [("set_input", 0, b"ab", -1), ("prepare", 3, 2**64 - 1), ("step",), ("run_opaque", 7)])

    def test_an_exception_is_minus_1_with_its_last_line(self):
        self.answer = ZeroDivisionError("wheel\nfell off")
        self.assertEqual(self.each(), [-1] * 4)
        self.assertEqual(self.host.text(), "run_opaque: ZeroDivisionError: wheel\nfell off")
        self.host.step()
        self.assertEqual(self.host.text(), "step: ZeroDivisionError: wheel\nfell off")

    def test_what_would_end_python_is_an_error_too(self):
        for self.answer in (SystemExit(3), KeyboardInterrupt(), GeneratorExit()):
            self.assertEqual(self.each(), [-1] * 4)
            self.assertEqual(self.host.get_output(1)[0], -1)

    def test_an_exception_may_carry_a_status(self):
        for code in (-2, -3, -4, -5, -6, -77):
            self.answer = rt.VerbStatusError(code, f"code {code}")
            self.assertEqual(self.each(), [code] * 4)
            self.assertEqual(self.host.text(), f"run_opaque: code {code}")
        for code in (0, 1, True, "x", -(2**31) - 1):
            with self.assertRaises(ValueError):
                rt.VerbStatusError(code)

    def test_a_negative_status_passes(self):
        self.answer = -4
        self.assertEqual(self.each(), [-4] * 4)
        self.assertEqual(self.host.text(), "run_opaque: the producer answered -4")
        self.assertEqual(self.host.get_output(1)[0], -4)

    def test_a_positive_or_other_answer_is_minus_1(self):
        for self.answer in (1, True, False, 2**40, -(2**40), 0.0, "0", b"", [], object()):
            self.assertEqual(self.each(), [-1] * 4, self.answer)
            self.assertIn("run_opaque: expected", self.host.text())

    def test_an_exception_whose_text_fails_is_still_minus_1(self):
        class Bad(Exception):
            def __str__(self):
                raise ValueError("no text")

        self.answer = Bad()
        self.assertEqual(self.each(), [-1] * 4)
        self.assertIn("Bad", self.host.text())

    def test_a_nul_in_a_text_does_not_end_it(self):
        self.answer = ValueError("a\0b")
        self.host.step()
        self.assertEqual(self.host.text(), "step: ValueError: a\\0b")

    def test_outputs_come_as_bytes_buffers_or_text(self):
        grid = memoryview(bytes(range(12))).cast("B", (3, 4))
        for self.answer, expected in (
            (b"abc", b"abc"), (bytearray(b"xy"), b"xy"), ("höhe", "höhe".encode()), ("", b""), (b"", b""),
            (array.array("f", [1.0, -2.0]), array.array("f", [1.0, -2.0]).tobytes()), (grid, bytes(range(12))),
            (memoryview(b"abcdef")[::2], b"ace"), ((ctypes.c_uint16 * 2)(1, 2), b"\1\0\2\0"),
        ):
            status, data, written = self.host.get_output(1)
            self.assertEqual((status, data, written), (0, expected, len(expected)))

    def test_a_short_buffer_is_minus_5_with_the_needed_size_and_untouched(self):
        self.answer = b"0123456789"
        for capacity in (0, 9):
            status, data, written = self.host.get_output(1, capacity)
            self.assertEqual((status, written), (-5, 10))
            self.assertEqual(data, b"\xee" * capacity)
            self.assertIn(f"10 bytes are needed, the host gives {capacity}", self.host.text())
        self.assertEqual(self.host.get_output(1, 10), (0, b"0123456789", 10))

    def test_an_output_of_another_kind_is_minus_1(self):
        for self.answer in (None, 0, 1, 3.0, object(), [1, 2]):
            status, data, _ = self.host.get_output(1)
            self.assertEqual((status, data), (-1, b"\xee" * 64), self.answer)
        self.answer = "\ud800"
        self.assertEqual(self.host.get_output(1)[0], -4)

    def test_ports_that_are_not_there_or_go_the_other_way(self):
        self.assertEqual([self.host.set_input(1, b""), self.host.get_output(0)[0]], [-1, -1])
        self.assertEqual(self.host.text(), "get_output: port 'state' is an IN port")
        self.assertEqual([self.host.set_input(3, b""), self.host.get_output(2**32 - 1)[0]], [-2, -2])
        self.assertEqual(self.host.text(), "get_output: port 4294967295: the model has 3")
        self.assertEqual(self.calls, [])
        self.assertEqual(self.host.set_input(2, b"k"), 0)

    def test_null_places_for_an_output(self):
        verbs, self_ = self.host.verbs, self.host.model.self_
        written = ctypes.c_uint64()
        self.answer = b""
        self.assertEqual(verbs.get_output(self_, 1, None, 0, ctypes.addressof(written), -1), 0)
        self.assertEqual(verbs.get_output(self_, 1, None, 4, ctypes.addressof(written), -1), -1)
        self.assertEqual(verbs.get_output(self_, 1, None, 0, None, -1), -1)
        self.answer = b"abc"
        self.assertEqual(verbs.get_output(self_, 1, None, 0, ctypes.addressof(written), -1), -5)
        self.assertEqual(written.value, 3)

    def test_the_text_stays_until_the_next_failure(self):
        self.answer = ValueError("first")
        self.host.step()
        address = self.host.verbs.last_error(self.host.model.self_)
        self.assertEqual(address, self.host.verbs.last_error(self.host.model.self_))
        self.assertEqual(ctypes.string_at(address), b"step: ValueError: first")


class SwapPorts(unittest.TestCase):
    def test_verbs_refuse_a_swap_port_and_name_its_window(self):
        with rt.build_model_runtime(
            0x1000, streams=[rt.StreamSpec("main", 0)], graphs=[rt.GraphSpec("g", 0x2000)], stages=[rt.StageSpec("g")],
            ports=[rt.PortSpec("noise", "tensor", buffer=0x3000, nbytes=4)], identity={}, set_input=lambda *a: 0,
        ) as m:
            host = Host(m)
            self.assertEqual(host.set_input(0, b"abcd"), -3)
            self.assertIn("port 'noise' is SWAP", host.text())
            host.close()


class LastError(unittest.TestCase):
    def test_the_producers_text_speaks_for_a_status_and_ours_for_an_exception(self):
        answers = iter([-2, RuntimeError("own"), -6])
        texts = iter(["no such port", RuntimeError("worse")])

        def step():
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return answer

        def last_error():
            text = next(texts)
            if isinstance(text, Exception):
                raise text
            return text

        with rt.build_metadata_model_runtime(identity={}, step=step, last_error=last_error) as m:
            host = Host(m)
            self.assertEqual((host.step(), host.text()), (-2, "no such port"))
            self.assertEqual(host.text(), "no such port")
            self.assertEqual((host.step(), host.text()), (-1, "step: RuntimeError: own"))
            self.assertEqual((host.step(), host.text()), (-6, "last_error: RuntimeError: worse"))
            host.close()

    def test_there_is_a_text_before_any_failure(self):
        with rt.build_metadata_model_runtime(identity={}, step=lambda: 0) as m:
            host = Host(m)
            self.assertEqual(host.text(), "no failure yet")
            host.close()


if __name__ == "__main__":
    unittest.main()
