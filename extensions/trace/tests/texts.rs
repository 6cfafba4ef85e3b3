//! Figures and errors as text: figures are a line with names and units; an error's cause is in its text or is its
//! `source()`, never both.

use std::error::Error as _;
use std::path::Path;
use vrampool::errors::chain;
use vrampool::host::HostDevice;
use vrampool::{Error, Pool};
use vrampool_test_support::assert_causes_once;
use vrampool_trace::fitted::FittedClasses;
use vrampool_trace::output::Output;
use vrampool_trace::{Replay, Trace};

#[test]
fn figures_of_traces_are_a_line() -> Result<(), Box<dyn std::error::Error>> {
    let text = "op,id,size,stream,t_us\na,0,3000,0,0\nf,0,3000,0,5\na,1,1000,0,7\n";
    let trace = Trace::parse(text.as_bytes())?;
    let summary = trace.summary().to_string();
    let figures = "allocations 2, frees 1, never freed 1, streams 1, sizes 2, requested 3.9 KiB (peak 2.9 KiB, largest 2.9 KiB)";
    assert!(summary.ends_with(figures), "{summary}");
    let range = trace.size_ranges()[1].to_string();
    assert_eq!(range, "2048 to 4095 bytes: allocations 1 (50.0 %), requested 2.9 KiB");
    let passes = Replay::new(&trace).run(&Pool::new(&HostDevice::new())?)?;
    let pass = passes[0].to_string();
    assert!(
        pass.starts_with("pass 0: operations 3 of ") && pass.contains("peaks: requested 2.9 KiB, "),
        "{pass}"
    );
    Ok(())
}

#[test]
fn errors_of_files_name_a_cause_once() {
    let nowhere = Path::new("/no/such/folder/file");
    let output = Output::create(nowhere).and_then(|output| output.save(b"")).expect_err("no folder");
    let fitted = FittedClasses::load(nowhere).expect_err("no file");
    let trace = Trace::read(nowhere).map(drop).expect_err("no file");
    assert_causes_once(&output);
    assert_causes_once(&fitted);
    assert_causes_once(&trace);
    let causes = [output.source(), fitted.source(), trace.source()];
    for cause in causes {
        let cause = cause.expect("the system's error");
        assert!(cause.is::<std::io::Error>(), "{cause}");
    }
    assert!(chain(&fitted).to_string().ends_with("(os error 2)"), "{}", chain(&fitted));
}

#[test]
fn errors_of_a_replay_have_the_pools_as_source() {
    let device = HostDevice::builder().memory_limit(1 << 20).build();
    let pool = Pool::builder(&device).limit(4096).build().expect("a pool");
    let trace: Trace = Trace::parse(&b"op,id,size,stream,t_us\na,1,100000,0,0\n"[..]).expect("a trace");
    let refused = Replay::new(&trace).run(&pool).map(drop).expect_err("more than the limit");
    assert_causes_once(&refused);
    let cause = refused.source().and_then(|cause| cause.downcast_ref::<Error>());
    assert!(cause.is_some_and(Error::is_out_of_memory), "{refused:?}");
}
