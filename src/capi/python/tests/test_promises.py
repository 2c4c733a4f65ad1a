"""A STAGED port is a promise: it needs the Python function behind it, before anything is assembled."""

import gc
import unittest
import weakref
from unittest import mock

from support import Host, rt


def port(name, direction, update):
    return rt.PortSpec(name, "tensor", "f32", direction=direction, update=update, shape=(1,))


def metadata(ports, **verbs):
    return rt.build_metadata_model_runtime(identity={"model": "m"}, ports=ports, **verbs)


def graphs(ports, **verbs):
    return rt.build_model_runtime(
        0x1000, streams=[rt.StreamSpec("main", 0)], graphs=[rt.GraphSpec("g", 0x2000)], buffers=(), regions=(), ports=ports,
        stages=[rt.StageSpec("g")], identity={"model": "m"}, **verbs)


class StagedPorts(unittest.TestCase):
    def refused(self, build, needed, ports, **verbs):
        class Owner:
            pass

        owner = Owner()
        seen = weakref.ref(owner)
        with mock.patch("flashrt_runtime.model._assemble", side_effect=AssertionError("assembled")):
            with self.assertRaisesRegex(ValueError, f"ports require {needed}"):
                build(ports, owner=owner, **verbs)
        del owner
        gc.collect()
        self.assertIsNone(seen())

    def test_in_needs_set_input_and_out_needs_get_output_in_both_modes(self):
        for build, step in ((metadata, {"step": lambda: 0}), (graphs, {})):
            with self.subTest(build.__name__):
                given, taken = port("p", "in", "staged"), port("q", "out", rt.Update.STAGED)
                self.refused(build, "set_input", [given], get_output=lambda p, s: b"", **step)
                self.refused(build, "get_output", [taken], set_input=lambda p, d, s: 0, **step)
                self.refused(build, "get_output", [given, taken], set_input=lambda p, d, s: 0, **step)
                build([given, taken], set_input=lambda p, d, s: 0, get_output=lambda p, s: b"", **step).release()

    def test_setup_and_swap_need_neither(self):
        metadata([port("p", "in", "setup"), port("q", "out", "setup")], step=lambda: 0).release()
        graphs([rt.PortSpec("w", "tensor", buffer=0x3000, nbytes=4)]).release()

    def test_a_function_that_is_none_is_a_null_verb_that_answers_unsupported(self):
        with graphs([]) as m:
            host = Host(m)
            self.assertEqual([host.set_input(0, b"x"), host.get_output(0)[0], host.prepare(0, 0), host.step()], [-3] * 4)
            host.close()

    def test_a_verb_that_is_no_function_is_refused(self):
        with self.assertRaisesRegex(TypeError, "step: expected a callable or None, got 3"):
            metadata([], step=3)


if __name__ == "__main__":
    unittest.main()
