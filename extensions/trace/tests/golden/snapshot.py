"""Writes snapshot.pickle, which has all that PyTorch's own snapshots have, on two devices, and little of it."""

import pickle

FRAMES = [{"filename": "model.py", "line": 12, "name": "forward"}, {"filename": "??", "line": 0, "name": "at::empty"}]
BASE = 0x7F3A00000000


def event(action, addr, size, time_us, stream=0):
    where = {"device_free": 5 << 30} if action == "oom" else {"addr": addr}
    return {"action": action, **where, "size": size, "stream": stream, "time_us": 1_700_000_000_000_000 + time_us,
            "frames": FRAMES, "compile_context": "N/A", "user_metadata": ""}


def block(address, size, requested, state):
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": FRAMES}


def segment(device, address, total, stream, blocks):
    return {"device": device, "address": address, "total_size": total, "allocated_size": 0, "active_size": 0,
            "requested_size": 0, "stream": stream, "segment_type": "small", "segment_pool_id": (0, 0),
            "is_expandable": False, "frames": FRAMES, "blocks": blocks}


history = [
    event("segment_alloc", BASE, 2 << 20, 0),
    event("alloc", BASE, 1000, 3),
    event("alloc", BASE + 1024, 100, 4, stream=94_000),
    event("free_requested", BASE, 1000, 10),
    event("free_completed", BASE, 1000, 11),
    # It was there before the history began.
    event("free_requested", BASE + 4096, 700, 12),
    event("free_completed", BASE + 4096, 700, 12),
    event("oom", 0, 80 << 30, 13),
    event("alloc", BASE, 0, 20),
    event("snapshot", 0, 0, 30),
]
snapshot = {
    "segments": [
        segment(0, BASE, 2 << 20, 0, [
            block(BASE, 512, 0, "active_allocated"),
            block(BASE + 512, 512, 0, "inactive"),
            block(BASE + 1024, 512, 100, "active_allocated"),
            # So was this, and it is still there.
            block(BASE + 1536, 2560, 2049, "active_allocated"),
            block(BASE + 4096, 1024, 700, "active_awaiting_free"),
            block(BASE + 5120, (2 << 20) - 5120, 0, "inactive"),
        ]),
        segment(1, BASE, 2 << 20, 0, [block(BASE, 2 << 20, 2 << 20, "active_allocated")]),
    ],
    "device_traces": [history, []],
    "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0,
                           "expandable_segments": False, "roundup_power2_divisions": {"1": 0}},
    "external_annotations": [],
}

with open("snapshot.pickle", "wb") as file:
    pickle.dump(snapshot, file, protocol=4)
