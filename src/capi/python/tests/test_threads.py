"""Releases and ticks on threads that Python did not make, also while the interpreter goes."""

import gc
import subprocess
import sys
import threading
import time
import unittest
import weakref
from pathlib import Path

from support import WAIT_S, Host, built, environment, on_foreign_thread, rt


class Owner:
    pass


class Threads(unittest.TestCase):
    def tearDown(self):
        gc.collect()
        self.assertEqual(rt.live_models(), 0)

    def test_a_release_on_a_foreign_thread_ends_the_producers_objects_there(self):
        ended = []
        owner = Owner()
        weakref.finalize(owner, lambda: ended.append(threading.get_ident()))
        model = rt.build_metadata_model_runtime(identity={}, step=lambda: 0, owner=owner)
        del owner
        host = Host(model)
        release, address = host.model.release, host.model.owner
        model.release()
        self.assertEqual(ended, [])
        host.runtime.hand_over()
        self.assertTrue(on_foreign_thread(release, address), "the release did not come back")
        self.assertEqual(len(ended), 1)
        self.assertNotEqual(ended[0], threading.get_ident())

    def test_many_threads_retain_and_release_and_the_last_one_ends_it(self):
        owner = Owner()
        seen = weakref.ref(owner)
        model = rt.build_metadata_model_runtime(identity={}, step=lambda: 0, owner=owner)
        del owner

        def churn():
            for _ in range(200):
                model.retain().release()

        threads = [threading.Thread(target=churn) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertIsNotNone(seen())
        model.release()
        self.assertIsNone(seen())

    def test_a_model_may_be_released_by_its_own_callback(self):
        def step():
            host.runtime.release()
            return 0

        model = rt.build_metadata_model_runtime(identity={}, step=step)
        host = Host(model)
        verb, number = host.verbs.step, host.model.self_
        model.release()
        self.assertEqual(verb(number), 0)
        self.assertEqual(rt.live_models(), 0)
        # Its number is nobody's now: a late call is refused, not followed.
        self.assertEqual(verb(number), -1)

    def test_a_verb_waits_for_the_interpreter_lock_and_not_for_the_library(self):
        order = []

        def step():
            time.sleep(0.05)  # gives the lock up inside the callback
            order.append("step")

        with rt.build_metadata_model_runtime(identity={}, step=step) as model:
            host = Host(model)
            thread = threading.Thread(target=host.step)
            thread.start()
            time.sleep(0.01)
            order.append("main")
            # Calls into the library go on meanwhile.
            model.retain().release()
            thread.join(WAIT_S)
            host.close()
        self.assertEqual(order, ["main", "step"])


class AtExit(unittest.TestCase):
    def exits(self, text):
        """The program ends by itself, with 0 and without a word on stderr."""
        done = subprocess.run([sys.executable, "-c", text], env=environment(), capture_output=True, text=True, timeout=WAIT_S,
                              cwd=Path(__file__).parent)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return done.stdout

    def test_a_model_that_is_never_released_is_left_to_the_end_of_the_process(self):
        self.exits("from support import rt\nmodel = rt.build_metadata_model_runtime(identity={}, step=lambda: 0)")

    def test_a_context_and_its_views_may_go_in_any_order(self):
        self.exits("from support import rt\nctx = rt.ExecContext('cpu')\nb = ctx.alloc('b', 8)\nview = b.view()\ndel ctx, b\nview[0] = 1")

    def test_a_verb_in_an_exit_handler_behind_ours_is_refused(self):
        out = self.exits(
            "import atexit\nhost = None\natexit.register(lambda: print(host.step(), host.text()))\nfrom support import Host, rt\n"
            "host = Host(rt.build_metadata_model_runtime(identity={}, step=lambda: 0))")
        self.assertEqual(out.strip(), "-6 step: the interpreter is shutting down")

    @unittest.skipIf(built("libpython_host.so") is None, "libpython_host.so is not built")
    def test_a_native_thread_may_tick_on_while_the_interpreter_goes(self):
        self.exits(
            "import threading, time\nfrom test_rust_host import OpaquePolicy, host_run\nmodel = OpaquePolicy().model()\n"
            "def run():\n    try: host_run(model, [[1, 2, 3, 4]] * 300000)\n    except RuntimeError: pass\n"
            "threading.Thread(target=run, daemon=True).start()\ntime.sleep(0.3)")


if __name__ == "__main__":
    unittest.main()
