//! Pickles: none is executed; invalid ones are rejected with their position.

use super::refused;
use vrampool_trace::{Format, Import, TraceFault};

#[test]
fn nothing_in_a_pickle_is_run() {
    // `os.system("…")` in each way that there is, and what else is no plain data.
    let table: [(&[u8], &str); 12] = [
        (b"cos\nsystem\n(S'true'\ntR.", "GLOBAL"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.", "STACK_GLOBAL"),
        (b"\x80\x02NNR.", "REDUCE"),
        (b"\x80\x02NNb.", "BUILD"),
        (b"(S'true'\nios\nsystem\n.", "INST"),
        (b"\x80\x02(No.", "OBJ"),
        (b"\x80\x02NN\x81.", "NEWOBJ"),
        (b"\x80\x04NNN\x92.", "NEWOBJ_EX"),
        (b"\x80\x02NQ.", "PERSID"),
        (b"\x80\x02\x82\x01.", "EXT"),
        (b"\x80\x04\x8f.", "a set"),
        (b"\x80\x05\x97.", "NEXT_BUFFER"),
    ];
    for (pickle, name) in table {
        let error = Import::new().format(Format::PyTorch).parse(pickle).expect_err(name);
        assert!(error.to_string().contains(&format!("({name})")), "{name}: {error}");
        assert!(
            error.place.offset.is_some() && error.to_string().contains("pickles are never executed"),
            "{error}"
        );
    }
    let error = refused(b"\x80\x02NNR.");
    assert!(
        error.to_string().starts_with("trace, byte 4: the pickle has instruction 0x52 (REDUCE)"),
        "{error}"
    );
}

#[test]
fn damaged_pickles_are_refused_where_they_are_damaged() {
    let damaged: [&[u8]; 14] = [
        b"\x80\x02.",      // nothing to answer
        b"\x80\x02e.",     // items of no list
        b"\x80\x02(e.",    // likewise
        b"\x80\x02N(e.",   // to a value that is no list
        b"\x80\x02Na.",    // likewise
        b"\x80\x02}(Nu.",  // a key without a value
        b"\x80\x02N(NNu.", // in what is no dictionary
        b"\x80\x02(s.",    // below a mark
        b"\x80\x02(00.",   // likewise
        b"\x80\x02h\x00.", // of an empty memo
        b"\x80\x02q\x00.", // nothing to remember
        b"\x80\x02gx\n.",  // no place
        b"\x80\x02\x86.",  // a pair of nothing
        b"\x80\x022.",     // twice nothing
    ];
    for pickle in damaged {
        let error = refused(pickle);
        assert!(matches!(error.fault, TraceFault::NotPickled), "{pickle:?}: {error}");
        assert!(error.place.offset.is_some_and(|offset| offset < pickle.len() as u64), "{pickle:?}: {error}");
    }
    let newer = Import::new().format(Format::PyTorch).parse(&b"\x80\x06."[..]).expect_err("a newer protocol");
    assert!(
        newer.to_string().contains("the pickle has protocol 6; write it with protocol 0 to 5"),
        "{newer}"
    );
}

#[test]
fn what_is_no_snapshot_is_said_to_be_none() {
    // In protocol 0, which can be read.
    let table = [
        ("(d.", "a dictionary with `device_traces`"),
        ("(dS'device_traces'\nI1\ns.", "`device_traces` is a list"),
        ("(dS'device_traces'\n(I1\nls.", "a device's trace is a list"),
        ("(dS'device_traces'\n((I1\nlls.", "an event is a dictionary"),
        ("(dS'device_traces'\n(((dlls.", "an event is a dictionary with an `action`"),
        ("(dS'device_traces'\n(((S'action'\nS'alloc'\ndlls.", "`addr` is a number"),
        ("(dS'device_traces'\n(((S'action'\nS'alloc'\nS'addr'\nNdlls.", "numbers of 64 bits"),
        (
            "(dS'device_traces'\n(((S'action'\nS'alloc'\nS'addr'\nI9\nS'size'\nI-1\ndlls.",
            "a size is not negative",
        ),
        ("(dS'segments'\n(I1\nls.", "are dictionaries"),
        ("(dS'segments'\n((dls.", "an `address` and `blocks`"),
        ("(dS'segments'\n((S'device'\nI-1\ndls.", "`device` is a number from 0"),
    ];
    for (pickle, words) in table {
        // With what else a snapshot has.
        let pickle = pickle.replacen("(dS'dev", "(dS'segments'\n(lsS'dev", 1).replacen(
            "(dS'seg",
            "(dS'device_traces'\n(lsS'seg",
            1,
        );
        let error = Import::new().format(Format::PyTorch).parse(pickle.as_bytes()).expect_err(&pickle);
        assert!(matches!(error.fault, TraceFault::Shape(_)) || words == "a list", "{pickle}: {error}");
        assert!(error.to_string().contains(words), "{pickle}: {error}");
    }
    let addr = "S'action'\nS'alloc'\nS'addr'\nI9\nS'size'\nI1\nd";
    let twice = format!("(dS'segments'\n(lsS'device_traces'\n((({addr}({addr}lls.");
    let error = Import::new().format(Format::PyTorch).parse(twice.as_bytes()).expect_err("twice");
    assert_eq!((error.place.device, error.place.event), (Some(0), Some(1)), "{error}");
    assert!(error.to_string().starts_with("trace, device 0, event 1: an allocation at 0x9"), "{error}");
}
