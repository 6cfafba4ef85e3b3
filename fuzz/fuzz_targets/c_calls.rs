//! Calls of every function of the C library, right and wrong, by four threads that each take a part of the
//! bytes. Each sequence is in a child, since the library is the process's; so a fuzzer learns nothing of what
//! it covers.
#![no_main]

#[path = "../../bindings/c/tests/random_calls/mod.rs"]
mod random_calls;

use libfuzzer_sys::fuzz_target;
use random_calls::Choices;

const THREADS: usize = 4;

fuzz_target!(|bytes: &[u8]| {
    // SAFETY: this process has one thread, and never calls the library itself.
    match unsafe { libc::fork() } {
        0 => {
            let parts = bytes.chunks(bytes.len().div_ceil(THREADS).max(1));
            let _ = random_calls::sequence(parts.map(Choices::Bytes).collect());
            // SAFETY: a call without memory.
            unsafe { libc::_exit(0) };
        }
        child => {
            assert!(child > 0, "no process");
            let mut status = 0;
            // A fuzzer's timer interrupts the wait.
            let ended = loop {
                // SAFETY: the child is this process's own, and the status a variable.
                let ended = unsafe { libc::waitpid(child, &mut status, 0) };
                if ended >= 0 || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
                    break ended;
                }
            };
            assert_eq!((ended, status), (child, 0), "the child ended by a signal, or not well");
        }
    }
});
