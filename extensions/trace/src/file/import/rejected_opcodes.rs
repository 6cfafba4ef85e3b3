//! Pickle instructions that are rejected.

/// Returns Python's name of a rejected instruction.
pub(super) fn name(opcode: u8) -> &'static str {
    match opcode {
        b'c' => "GLOBAL",
        0x93 => "STACK_GLOBAL",
        b'R' => "REDUCE",
        b'b' => "BUILD",
        b'i' => "INST",
        b'o' => "OBJ",
        0x81 => "NEWOBJ",
        0x92 => "NEWOBJ_EX",
        b'P' | b'Q' => "PERSID",
        0x82..=0x84 => "EXT",
        0x8f..=0x91 => "a set",
        0x97 | 0x98 => "NEXT_BUFFER",
        _ => "unknown",
    }
}
