//! The keys of a snapshot that the reader uses.

/// Defines the keys and their texts.
macro_rules! keys {
    ($($Name:ident = $text:literal,)*) => {
        /// One of the keys.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum SnapshotKey {
            $($Name,)*
        }

        impl SnapshotKey {
            /// Returns the key with this text.
            pub(super) fn of(text: &[u8]) -> Option<Self> {
                $(if text == $text.as_bytes() {
                    return Some(Self::$Name);
                })*
                None
            }

            /// Returns its text.
            pub(super) fn text(self) -> &'static str {
                match self {
                    $(Self::$Name => $text,)*
                }
            }
        }
    };
}

keys! {
    Action = "action",
    Addr = "addr",
    Size = "size",
    Stream = "stream",
    Time = "time_us",
    Alloc = "alloc",
    FreeRequested = "free_requested",
    Address = "address",
    State = "state",
    RequestedSize = "requested_size",
    ActiveAllocated = "active_allocated",
    Blocks = "blocks",
    Device = "device",
    Segments = "segments",
    DeviceTraces = "device_traces",
    FreeCompleted = "free_completed",
    SegmentAlloc = "segment_alloc",
    SegmentFree = "segment_free",
    SegmentMap = "segment_map",
    SegmentUnmap = "segment_unmap",
    Snapshot = "snapshot",
    OutOfMemory = "oom",
    UserDefined = "user_defined",
    WorkspaceSnapshot = "workspace_snapshot",
    Frames = "frames",
    Filename = "filename",
    Line = "line",
    Name = "name",
}
