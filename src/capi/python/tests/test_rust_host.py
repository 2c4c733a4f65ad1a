"""Models of Python code, ticked by the consumer of the runtime crate on a thread that Python did not make."""

import array
import ctypes
import gc
import struct
import threading
import unittest
import weakref

from support import built, rt

_HOST = built("libpython_host.so")
STATES, NOISE, ACTIONS = 4, 3, 2


def load():
    run = ctypes.CDLL(str(_HOST)).python_host_run
    run.restype = ctypes.c_int
    run.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t,
                    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
    return run


def host_run(model, states, noise=(), last=False):
    """Actions of each round, or the host's reason as RuntimeError. `noise` is one list of ints a round, or nothing."""
    rounds = len(states)
    flat = array.array("f", [x for row in states for x in row])
    swapped = array.array("i", [x for row in noise for x in row]) or array.array("i", [0])
    actions = array.array("f", [float("nan")] * (rounds * ACTIONS))
    text = ctypes.create_string_buffer(1000)
    status = load()(model.ptr, rounds, flat.buffer_info()[0], STATES, swapped.buffer_info()[0], NOISE * 4 if noise else 0,
                    actions.buffer_info()[0], ACTIONS * 4, last, text, len(text))
    if status != 0:
        raise RuntimeError(text.value.decode())
    return [list(actions[i * ACTIONS : (i + 1) * ACTIONS]) for i in range(rounds)]


def expected(states, noise, total=0):
    """The description: actions are the state's sum times 2 plus the noise's sum, and the running total of those."""
    rows = []
    for state, swapped in zip(states, noise):
        value = 2 * sum(state) + sum(swapped)
        total += value
        rows.append([value, total])
    return rows


class Owner:
    """Something that Python code wants back when the model ends."""


class GraphPolicy:
    """One graph of a host function over four buffers; `total` is state."""

    def __init__(self):
        self.ctx = rt.ExecContext("cpu")
        self.buffers = {name: self.ctx.alloc(name, n * 4) for name, n in
                        [("state", STATES), ("noise", NOISE), ("total", 1), ("actions", ACTIONS)]}
        views = {name: buffer.view() for name, buffer in self.buffers.items()}
        self.threads = set()

        def infer():
            self.threads.add(threading.get_ident())
            value = 2 * sum(views["state"].cast("f")) + sum(views["noise"].cast("i"))
            total = struct.unpack("f", views["total"])[0] + value
            views["total"][:] = struct.pack("f", total)
            views["actions"][:] = struct.pack("ff", value, total)

        self.graph = self.ctx.graph("infer")
        self.graph.capture(0, lambda recorder: recorder.host_func(infer))
        self.views = views

    def set_input(self, port, payload, stream):
        if len(payload) != STATES * 4:
            raise rt.VerbStatusError(-4, f"state: expected {STATES * 4} bytes, got {len(payload)}")
        if payload.cast("f")[0] < -100:
            raise ValueError(f"joint 0 at {payload.cast('f')[0]}")
        self.views["state"][:] = payload

    def get_output(self, port, stream):
        return self.views["actions"]

    def model(self, **more):
        return rt.build_model_runtime(
            self.ctx, streams=[rt.StreamSpec("main", 0)], graphs=[rt.GraphSpec("infer", self.graph)],
            buffers=[rt.BufferSpec("total", self.buffers["total"], "state")], regions=[rt.RegionSpec("total", "total")],
            ports=[
                rt.PortSpec("state", "state", update="staged", required=True, shape=(STATES,)),
                rt.PortSpec("noise", "tensor", "i32", shape=(NOISE,), buffer=self.buffers["noise"]),
                rt.PortSpec("actions", "action", direction="out", update="staged", shape=(1, ACTIONS)),
            ],
            stages=[rt.StageSpec("infer")], identity={"model": "python"}, set_input=self.set_input,
            get_output=self.get_output, **more)


class OpaquePolicy:
    """No buffers of the library: a list in Python, an opaque stage."""

    def __init__(self):
        self.state, self.total, self.value = [0.0] * STATES, 0.0, 0.0

    def set_input(self, port, payload, stream):
        self.state = payload.cast("f").tolist()

    def run_opaque(self, ref):
        self.value = 2 * sum(self.state)
        self.total += self.value

    def model(self, **more):
        return rt.build_metadata_model_runtime(
            identity={"model": "opaque"}, set_input=self.set_input, run_opaque=self.run_opaque,
            get_output=lambda port, stream: struct.pack("ff", self.value, self.total),
            generic_stages=[rt.GenericStageSpec("infer", "opaque", 7)],
            ports=[rt.PortSpec("state", "state", update="staged", required=True, shape=(STATES,)),
                   rt.PortSpec("actions", "action", direction="out", update="staged", shape=(1, ACTIONS))], **more)


STATE_ROWS = [[r, r + 1, -2 * r, 0.5] for r in range(6)]
NOISE_ROWS = [[r, 10 * r, -7] for r in range(6)]


@unittest.skipIf(_HOST is None, "libpython_host.so is not built: cargo build --release -p flashrt-capi --example python_host")
class RustHost(unittest.TestCase):
    def tearDown(self):
        gc.collect()
        self.assertEqual(rt.live_models(), 0)

    def test_five_rounds_of_staged_and_swap_updates_give_the_described_actions_and_move_nothing(self):
        policy = GraphPolicy()
        with policy.model() as model:
            before = policy.graph.variant_count(), [b.address for b in policy.buffers.values()]
            self.assertEqual(host_run(model, STATE_ROWS[:5], NOISE_ROWS[:5]), expected(STATE_ROWS[:5], NOISE_ROWS[:5]))
            self.assertEqual((policy.graph.variant_count(), [b.address for b in policy.buffers.values()]), before)
            self.assertNotIn(threading.get_ident(), policy.threads)
            # The buffers are the model's: a second host goes on where the first one ended.
            total = sum(row[0] for row in expected(STATE_ROWS[:5], NOISE_ROWS[:5]))
            self.assertEqual(host_run(model, STATE_ROWS[5:], NOISE_ROWS[5:]), expected(STATE_ROWS[5:], NOISE_ROWS[5:], total))

    def test_opaque_stages_run_too(self):
        with OpaquePolicy().model() as model:
            self.assertEqual(host_run(model, STATE_ROWS), expected(STATE_ROWS, [[]] * 6))

    def test_what_a_callback_raises_reaches_the_host_as_text(self):
        with GraphPolicy().model() as model:
            with self.assertRaisesRegex(RuntimeError, r"ValueError: joint 0 at -101\.0"):
                host_run(model, [STATE_ROWS[0], [-101, 0, 0, 0]], NOISE_ROWS[:2])
            self.assertEqual(host_run(model, STATE_ROWS[:1], NOISE_ROWS[:1]), [[1 * 2 + 1 - 7, -8]])

    def test_the_last_release_on_a_native_thread_ends_the_python_objects(self):
        for kind, noise in (GraphPolicy, NOISE_ROWS[:1]), (OpaquePolicy, ()):
            policy, owner = kind(), Owner()
            seen = weakref.ref(owner), weakref.ref(policy)
            model = policy.model(owner=owner)
            del policy, owner
            self.assertIsNotNone(seen[0]())
            host_run(model, STATE_ROWS[:1], noise, last=True)
            model.hand_over()
            del model
            gc.collect()
            self.assertEqual([ref() for ref in seen], [None, None])

    def test_a_busy_interpreter_and_a_native_tick_do_not_lock_each_other(self):
        stop = threading.Event()

        def burn():
            while not stop.is_set():
                sum(range(1000))

        burners = [threading.Thread(target=burn) for _ in range(2)]
        for thread in burners:
            thread.start()
        try:
            with OpaquePolicy().model() as model:
                self.assertEqual(host_run(model, STATE_ROWS), expected(STATE_ROWS, [[]] * 6))
        finally:
            stop.set()
            for thread in burners:
                thread.join()


if __name__ == "__main__":
    unittest.main()
