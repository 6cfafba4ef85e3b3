//! Random bytes end in an error.

use super::{FORMATS, HEADER};
use proptest::prelude::*;
use vrampool_trace::{Format, Import, Limits};

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
        let few = Import::new().limits(Limits::default().max_events(1000));
        let _ = few.parse(&bytes[..]);
        for format in FORMATS {
            let _ = few.format(format).parse(&bytes[..]);
        }
        let _ = few.parse(&[b"\x80\x04", &bytes[..]].concat()[..]);
        let _ = few.parse(&[HEADER.as_bytes(), &bytes[..]].concat()[..]);
        let _ = few.parse(&[b"Thread,Time,Action,Pointer,Size,Stream\n", &bytes[..]].concat()[..]);
    }

    #[test]
    fn instructions_in_any_order_never_panic(
        places in prop::collection::vec((0..39usize, any::<u8>()), 0..400),
    ) {
        const PLAIN: &[u8; 39] = b"(012NIJKMFSUX]eal)t\x85\x86\x87}dsughjpqr\x94\x8a\x88\x8c.}]";
        let bytes: Vec<u8> = places.iter().flat_map(|&(place, byte)| [PLAIN[place], byte]).collect();
        let few = Import::new().format(Format::PyTorch).limits(Limits::default().max_events(1000));
        let _ = few.parse(&bytes[..]);
        let alone: Vec<u8> = places.iter().map(|&(place, _)| PLAIN[place]).collect();
        let _ = few.parse(&alone[..]);
    }
}
