"""headroom bits: every promise holds on this machine."""

import json


def test_the_promises_hold(headroom):
    done = headroom("bits", "--threads", 2, "--json")
    document = json.loads(done.stdout)
    different = {check["name"]: check["different"] for check in document["checks"] if not check["equal"]}
    assert different == {} and document["equal"]
    names = [check["name"] for check in document["checks"]]
    assert len(names) == len(set(names)) == 9
    assert {"number of ranks", "kill and resume", "alone or in a batch", "threads"} <= set(names)
