//! Random traces read back as they were written, and random bytes end in an error.

use super::{FORMATS, HEADER, RMM, SNAPSHOT, essence, written};
use proptest::prelude::*;
use vrampool_trace::{Format, Import, Limits, Trace};

/// A trace of whatever numbers say: each frees something live, or allocates.
fn trace_of(choices: &[(u8, u32, u8, u16)]) -> Trace {
    let (mut live, mut next, mut time, mut text) = (Vec::new(), 0, 0, HEADER.to_owned());
    for &(choice, size, stream, later) in choices {
        time += u64::from(later);
        if choice % 2 == 1 && !live.is_empty() {
            let id: u64 = live.swap_remove(usize::from(choice) % live.len());
            text += &format!("f,{id},77,{stream},{time}\n");
            continue;
        }
        next += 3;
        live.push(next);
        text += &format!("a,{next},{size},{stream},{time}\n");
    }
    Trace::parse(text.as_bytes()).expect("a trace")
}

proptest! {
    #[test]
    fn what_is_written_reads_back_as_it_was(choices: Vec<(u8, u32, u8, u16)>) {
        let trace = trace_of(&choices);
        for format in FORMATS {
            let back = Import::new().parse(&written(&trace, format)[..]);
            let back = back.map_err(|error| TestCaseError::fail(format!("{format}: {error}")))?;
            prop_assert_eq!(essence(&back), essence(&trace), "{}", format);
            prop_assert_eq!(back.peak_requested(), trace.peak_requested());
            if format == Format::Csv {
                prop_assert_eq!(back.events(), trace.events());
            }
            // And once more, which changes nothing.
            let again = Import::new().parse(&written(&back, format)[..]);
            let again = again.map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(again.events(), back.events());
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
        let few = Import::new().limits(Limits::default().max_events(1000));
        let _ = few.parse(&bytes[..]);
        for format in FORMATS {
            let _ = few.format(format).parse(&bytes[..]);
        }
        let _ = few.parse(&[b"\x80\x04", &bytes[..]].concat()[..]);
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

    #[test]
    fn changed_files_never_panic_and_errors_say_where(
        place: prop::sample::Index, bytes in prop::collection::vec(any::<u8>(), 0..6), removed in 0..6usize,
    ) {
        let own = written(&Import::new().parse(SNAPSHOT).expect("a snapshot"), Format::PyTorch);
        for valid in [SNAPSHOT, &own, RMM] {
            let at = place.index(valid.len());
            let mut changed = valid.to_vec();
            changed.splice(at..(at + removed).min(valid.len()), bytes.iter().copied());
            if let Err(error) = Import::new().limits(Limits::default().max_events(1000)).parse(&changed[..]) {
                prop_assert!(!error.to_string().is_empty());
                prop_assert!(error.offset.is_none_or(|offset| offset <= changed.len() as u64));
                prop_assert!(error.line.is_none_or(|line| line <= changed.len() as u64));
            }
        }
    }
}
