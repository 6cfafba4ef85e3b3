//! Programs of C's and C++'s, compiled against the header with the system's compilers and run: what a user of
//! the library does.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use vrampool_test_support::program;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Where cargo put the library that these tests are built with.
fn library() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let test = std::env::current_exe().expect("its own path");
        let folder = test.parent().expect("a folder");
        let library = folder.join("libvrampool_c.so");
        assert!(library.is_file(), "cargo builds {}", library.display());
        folder.into()
    })
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?} ended with {}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// Compiles a program in a folder of its own and answers where it is.
fn compile(compiler: &Path, name: &str, arguments: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    let program = folder.join("program");
    let library = library();
    run(Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread", "-I"])
        .arg(here("include"))
        .args(arguments)
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(library)
        // Before whatever the environment names, where an older build may be.
        .arg(format!("-Wl,--disable-new-dtags,-rpath,{}", library.display()))
        .args(["-lvrampool_c", "-ldl"]));
    program
}

#[test]
fn every_function_does_what_the_header_says() {
    let Some(cc) = program("cc") else { return };
    let source = here("tests/c/abi.c");
    let program = compile(&cc, "abi", &["-std=c11", source.to_str().expect("UTF-8")]);
    // It writes files where it is.
    let folder = program.parent().expect("a folder");
    assert_eq!(run(Command::new(&program).current_dir(folder)), "all is well\n");
}

/// A C program of `tests/c` that prints one line where all is well.
fn c_program(name: &str, flags: &[&str], arguments: &[&str]) {
    let Some(cc) = program("cc") else { return };
    let source = here(&format!("tests/c/{name}.c"));
    let flags = [&["-std=gnu11"], flags, &[source.to_str().expect("UTF-8")]].concat();
    let program = compile(&cc, name, &flags);
    assert_eq!(run(Command::new(&program).args(arguments)), "all is well\n");
}

#[test]
fn the_library_stays_when_it_is_closed_after_use() {
    let library = library().join("libvrampool_c.so");
    c_program("reload", &["-Wl,--as-needed"], &[library.to_str().expect("UTF-8")]);
}

#[test]
fn a_forked_child_fails_typed_does_not_wait_and_shares_nothing() {
    c_program("fork", &[], &[]);
}

#[test]
fn a_pool_lives_in_every_place_of_c() {
    c_program("places", &[], &[]);
}

/// Whatever the program does with SIGPIPE, which by default ends it.
#[test]
fn a_scraper_that_hangs_up_does_not_end_the_program() {
    c_program("hangup", &[], &[]);
}

/// Valgrind finds no fault, and knows each instruction and system call. Other drivers are out of its sight:
/// their faults are theirs.
#[test]
fn every_function_runs_under_memcheck() {
    let (Some(cc), Some(valgrind)) = (program("cc"), program("valgrind")) else { return };
    let source = here("tests/c/abi.c");
    let program = compile(&cc, "memcheck", &["-std=c11", source.to_str().expect("UTF-8")]);
    let folder = program.parent().expect("a folder");
    let mut command = Command::new(valgrind);
    command.args(["--quiet", "--error-exitcode=9", "--fair-sched=yes"]).arg(&program).current_dir(folder);
    for drivers in
        ["OCL_ICD_VENDORS", "VK_DRIVER_FILES", "VK_ICD_FILENAMES", "__EGL_VENDOR_LIBRARY_FILENAMES"]
    {
        command.env(drivers, "/nonexistent");
    }
    assert_eq!(run(&mut command), "all is well\n");
}

#[test]
fn the_header_is_c_and_cpp_without_a_warning() {
    let header = here("include/vrampool.h");
    for (compiler, arguments) in [("cc", ["-std=c11", "-xc"]), ("c++", ["-std=c++11", "-xc++"])] {
        let Some(compiler) = program(compiler) else { continue };
        run(Command::new(compiler)
            .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"])
            .args(arguments)
            .arg(&header));
    }
}

/// Compiles and runs a program with libraries of PyTorch's names and classes, made here, for one of the two
/// ABIs of C++'s strings.
fn run_with_torch(name: &str, abi: u8) {
    let Some(cpp) = program("c++") else { return };
    let (fake, abi) = (here("tests/c/fake"), format!("-D_GLIBCXX_USE_CXX11_ABI={abi}"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fake-{name}"));
    std::fs::create_dir_all(&folder).expect("a folder");
    for (name, source) in [("libc10.so", "c10.cpp"), ("libc10_cuda.so", "c10_cuda.cpp")] {
        run(Command::new(&cpp)
            .args(["-Wall", "-Wextra", "-Werror", "-std=c++17", "-O1", "-fPIC", "-shared", &abi, "-I"])
            .arg(&fake)
            .arg(format!("-Wl,-soname,{name}"))
            .arg(fake.join(source))
            .arg("-o")
            .arg(folder.join(name)));
    }
    let (source, fake) = (here(&format!("tests/c/{name}.cpp")), format!("-I{}", fake.display()));
    let (found_at, run_path) =
        (format!("-L{}", folder.display()), format!("-Wl,-rpath,{}", folder.display()));
    let arguments = [
        "-std=c++17",
        "-rdynamic",
        &abi,
        &fake,
        source.to_str().expect("UTF-8"),
        &found_at,
        &run_path,
        "-Wl,--no-as-needed",
        "-lc10_cuda",
        "-lc10",
    ];
    assert_eq!(run(&mut Command::new(compile(&cpp, name, &arguments))), "all is well\n");
}

#[test]
fn pytorchs_exceptions_arrive_and_its_functions_are_asked() {
    run_with_torch("torch", 1);
}

/// As PyPI's wheels of PyTorch up to 2.6 have it.
#[test]
fn a_pytorch_of_the_old_abi_is_known_to_take_no_exceptions() {
    run_with_torch("old_abi", 0);
}
