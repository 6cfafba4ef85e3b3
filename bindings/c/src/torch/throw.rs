//! Failures as PyTorch's own exceptions.
//!
//! They are classes of C++: `c10::OutOfMemoryError` and its base `c10::Error`, in libraries that a process
//! with PyTorch has loaded. Their parts are looked up by name and put together here, so that neither C++ nor
//! PyTorch is needed to build this: the exception is allocated and thrown by libstdc++, its text is a
//! `std::string` of libstdc++'s, `c10::Error`'s constructor makes the object, and the table of virtual
//! functions makes it an out-of-memory. An object of the derived class has no fields more.

use libloading::os::unix::{Library, RTLD_LAZY, Symbol};
use parking_lot::Mutex;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;

/// glibc's: only libraries that are there already.
const RTLD_NOLOAD: c_int = 4;

/// More than a `c10::Error` has (128 bytes in PyTorch 2.11), for versions to come.
const EXCEPTION_BYTES: usize = 1024;

/// As above, of a `std::string` (32).
type StringPlace = [usize; 8];

/// `c10::SourceLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
struct SourceLocation {
    function: *const c_char,
    file: *const c_char,
    line: u32,
}

type Allocate = unsafe extern "C-unwind" fn(usize) -> *mut c_void;
type Throw = unsafe extern "C-unwind" fn(*mut c_void, *const c_void, *const c_void) -> !;
type MakeString = unsafe extern "C-unwind" fn(*mut StringPlace, *const c_char, usize, *const u8);
type DropString = unsafe extern "C-unwind" fn(*mut StringPlace);
type MakeError = unsafe extern "C-unwind" fn(*mut c_void, SourceLocation, *mut StringPlace);

/// What it takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Thrower {
    allocate: Allocate,
    throw: Throw,
    make_string: MakeString,
    drop_string: DropString,
    make_error: MakeError,
    out_of_memory: Class,
    error: Class,
}

/// A class's table of virtual functions, where an object points into it.
#[derive(Debug, Clone, Copy)]
struct Class {
    table: *const *const c_void,
}

// SAFETY: addresses of functions and constants of libraries that stay loaded.
unsafe impl Send for Thrower {}
// SAFETY: as above.
unsafe impl Sync for Thrower {}

/// What throws PyTorch's exceptions, if it is in this process. It may be loaded later, so it is looked for
/// until it is there.
pub(crate) fn find() -> Option<Thrower> {
    static FOUND: Mutex<Option<Thrower>> = Mutex::new(None);
    let mut found = FOUND.lock();
    if found.is_none() {
        *found = look_for();
    }
    *found
}

fn look_for() -> Option<Thrower> {
    let c10 = loaded("libc10.so")?;
    let standard = loaded("libstdc++.so.6")?;
    let made_by: MakeError = symbol(
        &c10,
        b"_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE\0",
    )?;
    let error = class(&c10, b"_ZTVN3c105ErrorE\0")?;
    // The class has no function of its own: every library that throws it has its own table, all of them
    // alike.
    let throwers = ["libc10_cuda.so", "libtorch_python.so", "libtorch_cpu.so", "libc10_hip.so", "libc10.so"];
    let out_of_memory =
        throwers.iter().find_map(|library| class(&loaded(library)?, b"_ZTVN3c1016OutOfMemoryErrorE\0"))?;
    Some(Thrower {
        allocate: symbol(&standard, b"__cxa_allocate_exception\0")?,
        throw: symbol(&standard, b"__cxa_throw\0")?,
        make_string: symbol(
            &standard,
            b"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEC1EPKcmRKS3_\0",
        )?,
        drop_string: symbol(&standard, b"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEED1Ev\0")?,
        make_error: made_by,
        out_of_memory,
        error,
    })
}

/// A library, if the process has it already.
fn loaded(name: &str) -> Option<Library> {
    // SAFETY: nothing is loaded, so nothing is initialised; a library of the system's or PyTorch's is taken
    // to be what its name says.
    unsafe { Library::open(Some(name), RTLD_NOLOAD | RTLD_LAZY) }.ok()
}

fn symbol<T: Copy>(library: &Library, name: &[u8]) -> Option<T> {
    // SAFETY: each is asked for with the type that its mangled name says. PyTorch's and the standard library
    // are never unloaded, so that it may outlive this handle.
    let found: Symbol<T> = unsafe { library.get(name) }.ok()?;
    Some(*found)
}

fn class(library: &Library, name: &[u8]) -> Option<Class> {
    let start: *const *const c_void = symbol(library, name)?;
    // Past the offset to the whole object and the type, as the Itanium ABI has it.
    Some(Class { table: start.wrapping_add(2) })
}

impl Class {
    /// Its `std::type_info`, which is before the functions.
    fn type_info(self) -> *const c_void {
        let place = self.table.wrapping_sub(1);
        // SAFETY: the table of a class begins with two words before its functions; the second is this.
        unsafe { *place }
    }

    /// The destructor that frees no memory, which is the first function of a class that inherits
    /// `std::exception`.
    fn destructor(self) -> *const c_void {
        // SAFETY: the table of a class with virtual functions.
        unsafe { *self.table }
    }
}

impl Thrower {
    /// Throws an exception with this text, through callers that are all `C-unwind`.
    pub(crate) fn throw(&self, is_out_of_memory: bool, text: &str) -> ! {
        let class = if is_out_of_memory { self.out_of_memory } else { self.error };
        let mut string: StringPlace = [0; 8];
        let allocator = 0;
        // SAFETY: libstdc++'s constructor, with a place larger than a string, and text of this length; an
        // allocator has no state.
        unsafe {
            (self.make_string)(&raw mut string, text.as_ptr().cast(), text.len(), &raw const allocator)
        };
        // SAFETY: libstdc++'s, which ends the process rather than fail.
        let exception = unsafe { (self.allocate)(EXCEPTION_BYTES) };
        let place = SourceLocation {
            function: c"vrampool_torch_alloc".as_ptr(),
            file: c"vrampool".as_ptr(),
            line: 0,
        };
        // SAFETY: the constructor of `c10::Error`, with a place larger than one and a string that it takes
        // the text from. As the Itanium ABI has it, what is not trivial is passed by its address.
        unsafe { (self.make_error)(exception, place, &raw mut string) };
        // SAFETY: libstdc++'s destructor, for the string that was made above and is no longer used.
        unsafe { (self.drop_string)(&raw mut string) };
        // SAFETY: an object of the derived class is one of its base with another table, which is its first
        // word.
        unsafe { ptr::write(exception.cast(), class.table) };
        // SAFETY: an exception of this type and with this destructor, which is C++'s to catch and to free.
        unsafe { (self.throw)(exception, class.type_info(), class.destructor()) }
    }
}
