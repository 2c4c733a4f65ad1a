"""Child processes with a log file each, ended by their own id."""

import ctypes
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType


_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _end_with_parent() -> None:
    """In the child: SIGINT when the demo dies without a chance to clean up."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


@dataclass(frozen=True)
class NodeCommand:
    """How to start one node, and the full name it takes."""

    argv: list[str]
    name: str


class Child:
    """One process; leaving the ``with`` block ends it: SIGINT, then SIGKILL."""

    def __init__(self, argv: list[str], log: Path, env: dict[str, str] | None = None, grace_s: float = 10.0):
        """Start ``argv``; stdout and stderr go to ``log``."""
        self.argv, self.log, self._grace_s = argv, log, grace_s
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as out:
            # Its own process group: a Ctrl-C in the terminal reaches the demo, which then ends the child in order.
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})}, start_new_session=True, preexec_fn=_end_with_parent,
            )

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def check(self) -> None:
        """Raise with the end of the log if the process has ended."""
        code = self._process.poll()
        if code is not None:
            raise RuntimeError(f"{Path(self.argv[0]).name} ended with status {code}; its log {self.log} ends:\n{self.tail()}")

    def tail(self, lines: int = 12) -> str:
        """The last lines of the log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join("  " + line for line in text.splitlines()[-lines:])

    def stop(self, kind: int = signal.SIGINT) -> int:
        """End the process and return its exit status; a second call changes nothing."""
        if self._process.poll() is None:
            self._process.send_signal(kind)
            try:
                self._process.wait(self._grace_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
        return self._process.wait()

    def __enter__(self) -> "Child":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
