"""The SO-101 demo: a simulated arm and policy_node in closed loop over DDS.

``stats``, ``lockstep``, ``launchfile``, ``plots`` and ``report`` need no ROS; the
other modules talk to the node through its public topics and services alone.
"""
