# The commands of the project. Each installs what it needs below the checkout; see README.md.

.PHONY: help test rust ros demo bench soak clean

help:
	@echo "make test               everything that CI checks"
	@echo "make rust               the part of it that needs no ROS"
	@echo "make ros                colcon build and the ROS tests"
	@echo "make demo [EPISODES=n]  the simulated arm, the real node, a report in out/demo"
	@echo "make bench              every figure, as JSON and table, in out/bench"
	@echo "make soak               long storms, by hand before a release"
	@echo "make clean              removes what was built (not .ros, not downloads)"

test:
	@tools/check.sh all

rust:
	@tools/check.sh rust

ros:
	@tools/check.sh ros

demo:
	@exec env EPISODES="$(EPISODES)" RECORD="$(RECORD)" tools/demo/run.sh

bench:
	@tools/bench.sh

soak:
	@tools/soak.sh

clean:
	rm -rf build install log out target
