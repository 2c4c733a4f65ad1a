"""The programs of docs/python_producers.md run, and print what the page says."""

import re
import subprocess
import sys
import unittest
from pathlib import Path

from support import WAIT_S, environment

PAGE = Path(__file__).resolve().parents[4] / "docs" / "python_producers.md"


class Documentation(unittest.TestCase):
    def test_each_program_prints_what_the_page_says(self):
        pairs = re.findall(r"```python\n(.*?)```\s*```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
        self.assertEqual(len(pairs), 2)
        for program, expected in pairs:
            done = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, text=True, timeout=WAIT_S)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, expected, ""))


if __name__ == "__main__":
    unittest.main()
