"""What a producer may declare, and how a wrong declaration is refused."""

import gc
import unittest
import weakref

from support import rt


def model(**changes):
    """A model over fabricated handles, which the library never follows."""
    arguments = dict(
        streams=[rt.StreamSpec("main", 0)],
        graphs=[rt.GraphSpec("encode", 0x2000), rt.GraphSpec("decode", 0x3000)],
        buffers=[rt.BufferSpec("state", 0x4000, "state", nbytes=64)],
        regions=[rt.RegionSpec("state", "state", nbytes=64)],
        ports=[rt.PortSpec("noise", "tensor", buffer="state", nbytes=64, shape=(16,))],
        stages=[rt.StageSpec("encode"), rt.StageSpec("decode", after=["encode"])],
        identity={"model": "unit"},
    )
    arguments.update(changes)
    return rt.build_model_runtime(0x1000, **arguments)


class Refused(unittest.TestCase):
    def refused(self, error, text, **changes):
        with self.assertRaises(error) as caught:
            model(**changes)
        self.assertIn(text, str(caught.exception))
        self.assertEqual(rt.live_models(), 0)

    def test_names_that_nothing_has(self):
        self.refused(ValueError, "unknown stream 'side', declared are 'main'", graphs=[rt.GraphSpec("encode", 1, stream="side")])
        self.refused(ValueError, "stream 7 is not declared", graphs=[rt.GraphSpec("encode", 1, stream=7)])
        self.refused(ValueError, "unknown graph, declared are 'encode', 'decode'", stages=[rt.StageSpec("denoise")])
        self.refused(ValueError, "unknown stage 'vision'", stages=[rt.StageSpec("encode", after=["vision"])])
        self.refused(ValueError, "unknown buffer 'noise'", regions=[rt.RegionSpec("r", "noise", nbytes=1)])

    def test_names_that_stand_twice(self):
        self.refused(ValueError, "stage 'encode' is declared twice", stages=[rt.StageSpec("encode")] * 2)
        self.refused(ValueError, "graph 'encode' is declared twice", graphs=[rt.GraphSpec("encode", 1)] * 2)
        self.refused(ValueError, "port 'noise' is declared twice", ports=[rt.PortSpec("noise", "tensor", update="setup")] * 2)

    def test_a_dependency_on_a_later_stage(self):
        self.refused(ValueError, "after stage 1, expected an earlier one",
                     stages=[rt.StageSpec("encode", after=["decode"]), rt.StageSpec("decode")])
        self.refused(ValueError, "after stage 0, expected an earlier one", stages=[rt.StageSpec("encode", after=[0])])

    def test_numbers_that_c_would_cut_off(self):
        self.refused(ValueError, "got -1", graphs=[rt.GraphSpec("encode", 1, default_key=-1)])
        self.refused(ValueError, "got 18446744073709551616", graphs=[rt.GraphSpec("encode", 1, keys=[2**64])])
        self.refused(ValueError, "got 4294967296",
                     ports=[rt.PortSpec("p", "tensor", update="setup", cadence_hz=2**32)])
        self.refused(TypeError, "expected an int, got 1.5", streams=[rt.StreamSpec("main", 1.5)])

    def test_windows_past_the_end(self):
        with rt.ExecContext("cpu") as ctx:
            buffer = ctx.alloc("b", 16)
            self.refused(ValueError, "bytes 8 to 24 of a buffer of 16", regions=[rt.RegionSpec("r", buffer, 8, 16)])
            self.refused(ValueError, "bytes 17 to 17 of a buffer of 16", ports=[rt.PortSpec("p", "tensor", buffer=buffer, offset=17)])

    def test_names_and_numbers_of_no_enumeration(self):
        self.refused(ValueError, "expected one of tensor, image,", ports=[rt.PortSpec("p", "picture", update="setup")])
        self.refused(ValueError, "expected one of 0, 1, 2, got 3", ports=[rt.PortSpec("p", "tensor", update=3)])

    def test_a_text_with_nul(self):
        self.refused(ValueError, "has a NUL", identity={"model": "a\0b"})

    def test_two_plans_no_plan_and_a_runner_without_stages(self):
        opaque = [rt.GenericStageSpec("infer", "opaque", 7)]
        self.refused(ValueError, "one plan, both were given", generic_stages=opaque, run_opaque=print)
        self.refused(ValueError, "needs stages, generic_stages or step", stages=())
        self.refused(ValueError, "require run_opaque", stages=(), generic_stages=opaque)
        self.refused(ValueError, "no generic_stages to run", run_opaque=print)

    def test_by_the_library_with_its_text(self):
        with self.assertRaises(rt.FlashrtError) as caught:
            model(stages=(), generic_stages=[rt.GenericStageSpec("infer", "graph", 0)], run_opaque=print)
        self.assertIn("OPAQUE", str(caught.exception))
        self.assertEqual(caught.exception.code, -1)
        with self.assertRaises(rt.FlashrtError):
            model(ports=[rt.PortSpec("", "tensor", update="setup")])
        self.assertEqual(rt.live_models(), 0)

    def test_and_nothing_of_the_producer_is_kept(self):
        class Owner:
            pass

        owner = Owner()
        seen = weakref.ref(owner)
        with self.assertRaises(rt.FlashrtError):
            model(owner=owner, stages=(), generic_stages=[rt.GenericStageSpec("g", "graph", 0)], run_opaque=lambda ref: 0)
        with self.assertRaises(ValueError):
            model(owner=owner, stages=[rt.StageSpec("x")])
        del owner
        gc.collect()
        self.assertIsNone(seen())


class Accepted(unittest.TestCase):
    def test_the_numbers_are_those_of_the_abi(self):
        def numbers(kind):
            return {m.name: int(m) for m in kind}

        self.assertEqual(numbers(rt.Modality), dict(TENSOR=0, IMAGE=1, TEXT=2, STATE=3, ACTION=4, AUDIO=5, DEPTH=6, FORCE=7))
        self.assertEqual(numbers(rt.DType), dict(U8=0, F32=1, F16=2, BF16=3, I32=4, I64=5))
        self.assertEqual(numbers(rt.Layout), dict(FLAT=0, HWC=1, NHWC=2, CHW=3, NCHW=4))
        self.assertEqual(numbers(rt.PixelFormat), dict(RGB8=0, BGR8=1, RGBA8=2, BGRA8=3, GRAY8=4))
        self.assertEqual(numbers(rt.Direction), dict(IN=0, OUT=1))
        self.assertEqual(numbers(rt.Update), dict(SWAP=0, STAGED=1, SETUP=2))
        self.assertEqual(numbers(rt.Executor), dict(GRAPH=0, OPAQUE=1))
        self.assertEqual([int(r) for r in (rt.Role.INPUT, rt.Role.OUTPUT, rt.Role.STATE, rt.Role.SCRATCH)], [1, 2, 4, 8])
        self.assertEqual([int(r) for r in (rt.Region.SNAPSHOT, rt.Region.RESTORE, rt.Region.DEFAULT)], [1, 2, 3])
        self.assertEqual([f.channels for f in rt.PixelFormat], [3, 3, 4, 4, 1])

    def test_what_was_declared_is_what_the_native_structs_hold(self):
        with model(manifest={"b": 1, "a": [2]}) as m:
            self.assertEqual(m.manifest, '{"a": [2], "b": 1}')
            self.assertEqual(m.stages(), [{"graph": 0, "after": []}, {"graph": 1, "after": [0]}])
            self.assertEqual(m.generic_stages(), [])
            self.assertEqual(m.ports(), [{
                "name": "noise", "modality": 0, "dtype": 1, "layout": 0, "direction": 0, "update": 0, "required": 0,
                "shape": [16], "cadence_hz": 0, "buffer": 0x4000, "offset": 0, "bytes": 64,
            }])
            self.assertEqual(m.fingerprint, rt.fingerprint(m.identity.encode()))

    def test_stages_may_have_names_of_their_own_and_one_graph_twice(self):
        stages = [rt.StageSpec("encode", name="first"), rt.StageSpec("encode", name="second", after=["first", 0])]
        with model(stages=stages) as m:
            self.assertEqual(m.stages(), [{"graph": 0, "after": []}, {"graph": 0, "after": [0, 0]}])

    def test_a_mixed_plan_names_graphs_and_numbers(self):
        plan = [
            rt.GenericStageSpec("see", "graph", "decode"), rt.GenericStageSpec("think", rt.Executor.OPAQUE, 2**32 - 1, ["see"]),
            rt.GenericStageSpec("act", 0, 0, ["see", "think"]),
        ]
        with model(stages=(), generic_stages=plan, run_opaque=lambda ref: 0) as m:
            self.assertEqual(m.stages(), [])
            self.assertEqual([(s["executor_kind"], s["executor_ref"], s["after"]) for s in m.generic_stages()],
                             [(0, 1, []), (1, 2**32 - 1, [0]), (0, 0, [0, 1])])

    def test_window_lengths_come_from_the_buffer(self):
        with rt.ExecContext("cpu") as ctx:
            buffer = ctx.alloc("b", 16)
            with model(buffers=[rt.BufferSpec("b", buffer)], regions=[rt.RegionSpec("r", "b", 4)],
                       ports=[rt.PortSpec("p", "tensor", buffer=buffer, offset=8)]) as m:
                self.assertIn("region:0:r:4:12:3\n", m.identity)
                self.assertIn(":0:8:8\n", m.identity)


if __name__ == "__main__":
    unittest.main()
