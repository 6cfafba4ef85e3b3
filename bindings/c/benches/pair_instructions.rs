//! Instructions of a pair of calls of the shared library, counted by valgrind: those of many pairs less those of few.
//!
//! The library is loaded as by a program in C, because an access to a thread-local variable takes more instructions in
//! a shared library. The loop counts too.

use libloading::{Library, Symbol};
use std::env;
use std::error::Error;
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use vrampool_test_support::instructions;

type Create = unsafe extern "C" fn(*const c_char, *mut u64) -> c_int;
type Allocate = unsafe extern "C" fn(u64, u64, *mut c_void, *mut *mut c_void) -> c_int;
type Free = unsafe extern "C" fn(u64, *mut c_void, *mut c_void) -> c_int;
type Configure = unsafe extern "C" fn(*const c_char) -> c_int;
type TorchAlloc = unsafe extern "C" fn(usize, c_int, *mut c_void) -> *mut c_void;
type TorchFree = unsafe extern "C" fn(*mut c_void, usize, c_int, *mut c_void);

/// Pairs for the two counts of instructions.
const PAIRS: [u64; 2] = [1_000, 11_000];

const CASES: [&str; 3] = ["direct", "virtual", "torch"];

const BYTES: [u64; 2] = [4 << 10, 8 << 20];

fn run(case: &str, bytes: u64, pairs: u64) -> Result<(), Box<dyn Error>> {
    let file = env::current_exe()?.with_file_name(libloading::library_filename("vrampool_c"));
    // SAFETY: the library that cargo built with this program, which does nothing as it is loaded.
    let library = unsafe { Library::new(file) }?;
    let null = ptr::null_mut();
    if case == "torch" {
        // SAFETY: the types are the header's, here and below.
        let configure: Symbol<'_, Configure> = unsafe { library.get(b"vrampool_torch_configure")? };
        // SAFETY: as above.
        let alloc: Symbol<'_, TorchAlloc> = unsafe { library.get(b"vrampool_torch_alloc")? };
        // SAFETY: as above.
        let free: Symbol<'_, TorchFree> = unsafe { library.get(b"vrampool_torch_free")? };
        // SAFETY: text that ends with a 0.
        assert_eq!(unsafe { configure(c"device=host".as_ptr()) }, 0);
        for _ in 0..pairs {
            // SAFETY: no pointer is read.
            let address = unsafe { alloc(bytes as usize, 0, null) };
            assert!(!address.is_null());
            // SAFETY: as above.
            unsafe { free(address, bytes as usize, 0, null) };
        }
        return Ok(());
    }
    // SAFETY: as above.
    let create: Symbol<'_, Create> = unsafe { library.get(b"vrampool_create")? };
    // SAFETY: as above.
    let allocate: Symbol<'_, Allocate> = unsafe { library.get(b"vrampool_allocate")? };
    // SAFETY: as above.
    let free: Symbol<'_, Free> = unsafe { library.get(b"vrampool_free")? };
    let (mut pool, options) = (0, CString::new(format!("device=host; source={case}"))?);
    // SAFETY: text that ends with a 0, and a number's place.
    assert_eq!(unsafe { create(options.as_ptr(), &raw mut pool) }, 0);
    for _ in 0..pairs {
        let mut address = null;
        // SAFETY: a pointer's place.
        assert_eq!(unsafe { allocate(pool, bytes, null, &raw mut address) }, 0);
        // SAFETY: no pointer is read.
        assert_eq!(unsafe { free(pool, address, null) }, 0);
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [case, bytes, pairs] = &arguments[..] {
        return run(case, bytes.parse()?, pairs.parse()?);
    }
    println!("instructions for each pair of 4 KiB and of 8 MiB");
    for case in CASES {
        let each = BYTES.map(|bytes| {
            let [few, many] =
                PAIRS.map(|pairs| instructions(&[case.to_string(), bytes.to_string(), pairs.to_string()]));
            few.zip(many).map(|(few, many)| (many - few) as f64 / (PAIRS[1] - PAIRS[0]) as f64)
        });
        match each {
            [Some(small), Some(large)] => println!("c-{case:10} {small:8.1} {large:8.1}"),
            _ => println!("c-{case:10} no valgrind"),
        }
    }
    Ok(())
}
