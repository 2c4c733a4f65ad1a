"""Fingerprints and identity texts of the published worked examples."""

import unittest

from support import rt


def staged():
    return dict(set_input=lambda port, payload, stream: 0, get_output=lambda port, stream: b"")


class WorkedExamples(unittest.TestCase):
    def same(self, model, lines, fingerprint):
        with model:
            self.assertEqual(model.identity, "\n".join(["frt-runtime-identity-v1", *lines, ""]))
            self.assertEqual(f"{model.fingerprint:016x}", fingerprint)

    def test_a_two_graph_stages(self):
        self.same(
            rt.build_model_runtime(
                0x1000,
                streams=[rt.StreamSpec("main", 0)],
                graphs=[rt.GraphSpec("encode", 0x2000), rt.GraphSpec("decode", 0x3000)],
                buffers=[rt.BufferSpec("actions", 0x4000, "output", nbytes=4096)],
                ports=[
                    rt.PortSpec("images", "image", "bf16", "nhwc", "in", "staged", required=True, shape=(3, 224, 224, 3)),
                    rt.PortSpec("actions", "action", "bf16", "flat", "out", "staged", shape=(50, 32), buffer="actions", nbytes=3200),
                ],
                stages=[rt.StageSpec("encode"), rt.StageSpec("decode", after=["encode"])],
                identity={"model": "unit"},
                **staged(),
            ),
            [
                "model=unit", "graph:encode:0", "graph:decode:0", "port:0:images:1:3:2:0:1:1:3,224,224,3:-1:0:0",
                "port:1:actions:4:3:0:1:1:0:50,32:0:0:3200", "stage:0:0:", "stage:1:1:0",
            ],
            "d1393a80cdef15b3",
        )

    def test_c_opaque_stages_without_resources(self):
        self.same(
            rt.build_metadata_model_runtime(
                identity={"provider": "fixture"},
                ports=[
                    rt.PortSpec("prompt", "text", "u8", direction="in", update="staged", required=True, shape=[-1]),
                    rt.PortSpec("text", "text", "u8", direction="out", update="staged", shape=[-1]),
                ],
                generic_stages=[
                    rt.GenericStageSpec("prefill:main", "opaque", 91), rt.GenericStageSpec("阶段", "opaque", 113, after=[0]),
                    rt.GenericStageSpec("emit", "opaque", 7, after=["prefill:main", "阶段"]),
                ],
                run_opaque=lambda ref: 0,
                **staged(),
            ),
            [
                "provider=fixture", "port:0:prompt:2:0:0:0:1:1:-1:-1:0:0", "port:1:text:2:0:0:1:1:0:-1:-1:0:0",
                "gstage-v1:0:12:prefill:main:1:91:0:", "gstage-v1:1:6:阶段:1:113:1:0", "gstage-v1:2:4:emit:1:7:2:0,1",
            ],
            "70a152f17f4e7dd6",
        )

    def test_d_the_shape_of_pi05(self):
        self.same(
            rt.build_model_runtime(
                0x1000,
                streams=[rt.StreamSpec("main", 1)],
                graphs=[rt.GraphSpec(name, 0x2000 + i) for i, name in enumerate(("infer", "decode_only", "context"))],
                buffers=[
                    rt.BufferSpec("observation_images_normalized", 0x3000, nbytes=602112),
                    rt.BufferSpec("diffusion_noise", 0x4000, ("input", "output"), nbytes=640),
                ],
                regions=[rt.RegionSpec("rollout_boundary", "diffusion_noise", nbytes=640)],
                ports=[
                    rt.PortSpec("prompt", "text", "u8", update="staged", required=True, shape=[-1]),
                    rt.PortSpec("state", "state", "f32", update="staged", required=True, shape=[8]),
                    rt.PortSpec("images", "image", "bf16", "nhwc", update="staged", required=True, shape=(2, 224, 224, 3),
                                cadence_hz=30, buffer="observation_images_normalized", nbytes=602112),
                    rt.PortSpec("noise", "tensor", "bf16", shape=(10, 32), buffer="diffusion_noise", nbytes=640),
                    rt.PortSpec("actions", "action", "f32", direction="out", update="staged", shape=(10, 7), nbytes=280),
                    rt.PortSpec("actions_raw", "tensor", "bf16", direction="out", shape=(10, 32), buffer="diffusion_noise",
                                nbytes=640),
                ],
                stages=[rt.StageSpec("context"), rt.StageSpec("decode_only", after=["context"])],
                identity=[("model", "pi05"), ("producer", "native"), ("precision", "bf16"), ("stage_plan", "context_action")],
                **staged(),
            ),
            [
                "model=pi05", "producer=native", "precision=bf16", "stage_plan=context_action", "graph:infer:1",
                "graph:decode_only:1", "graph:context:1", "region:0:rollout_boundary:0:640:3",
                "port:0:prompt:2:0:0:0:1:1:-1:-1:0:0", "port:1:state:3:1:0:0:1:1:8:-1:0:0",
                "port:2:images:1:3:2:0:1:1:2,224,224,3:0:0:602112", "port:3:noise:0:3:0:0:0:0:10,32:1:0:640",
                "port:4:actions:4:1:0:1:1:0:10,7:-1:0:280", "port:5:actions_raw:0:3:0:1:0:0:10,32:1:0:640", "stage:0:2:",
                "stage:1:1:0",
            ],
            "b945e2db0f975ab4",
        )

    def test_e_step_only(self):
        self.same(rt.build_metadata_model_runtime(identity={"provider": "step"}, step=lambda: 0), ["provider=step"],
                  "4763a0bc8c01be17")

    def test_h_duplicate_dependencies(self):
        self.same(
            rt.build_model_runtime(
                0x1000, streams=[rt.StreamSpec("main", 0)], graphs=[rt.GraphSpec("g", 0x2000), rt.GraphSpec("h", 0x3000)],
                stages=[rt.StageSpec("g"), rt.StageSpec("h", after=["g", 0])], identity=()),
            ["graph:g:0", "graph:h:0", "stage:0:0:", "stage:1:1:0,0"],
            "b8be32fab6829d50",
        )


if __name__ == "__main__":
    unittest.main()
