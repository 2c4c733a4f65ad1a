"""Reading and copying a deployment file; slowing down for a slow simulator."""

from pathlib import Path

import pytest
import yaml
from closedloop.wiring import read_wiring, resolve, slower_rate, write_copy

CONFIG = Path(__file__).resolve().parents[3] / "config" / "so101_demo.yaml"


def test_topics_of_the_shipped_file_are_absolute():
    wiring = read_wiring(CONFIG)
    assert wiring.prompt_topic == "/policy_node/prompt"
    assert all(topic.startswith("/") for topic in (*wiring.image_topics, wiring.joint_topic, wiring.command_topic))
    assert len(wiring.views) == 2 and len(wiring.joint_names) == 6


@pytest.mark.parametrize(("topic", "full"), [("a/b", "/a/b"), ("/a", "/a"), ("~/p", "/n/p")])
def test_names_resolve_as_in_ros(topic, full):
    assert resolve(topic, "/n") == full


def test_a_copy_changes_only_what_is_asked_and_finds_its_weights(tmp_path):
    copy = write_copy(CONFIG, tmp_path / "deep" / "copy.yaml", {"tick.mode": "trigger"})
    before, after = yaml.safe_load(CONFIG.read_text()), yaml.safe_load(copy.read_text())
    assert after["tick"].pop("mode") == "trigger" and before["tick"].pop("mode") == "chunk"
    assert Path(after["model"].pop("weights")) == (CONFIG.parent / before["model"].pop("weights")).resolve()
    assert after == before


def test_only_a_slow_simulator_slows_the_arm_down():
    assert slower_rate(10.0, 70.0) is None
    assert slower_rate(10.0, 140.0) == 5.0
    assert slower_rate(10.0, 100_000.0) == 0.1
