//! What a pair of calls through the C ABI takes on the host device: a hit, as in every step of a program that
//! repeats itself.
//!
//! PyTorch's own allocator takes 138 to 171 ns for such a pair (its code alone, on one thread).

use criterion::{Criterion, criterion_group, criterion_main};
use std::ffi::CStr;
use std::hint::black_box;
use std::ptr;
use vrampool_c::boundary::Out;
use vrampool_c::{
    Status, vrampool_allocate, vrampool_create, vrampool_free, vrampool_torch_alloc,
    vrampool_torch_configure, vrampool_torch_free,
};

fn pool(options: &CStr) -> u64 {
    let mut pool = 0;
    assert_eq!(vrampool_create(options.into(), Out::from(&mut pool)), Status::OK);
    pool
}

fn pair(pool: u64, bytes: u64) {
    let mut address = ptr::null_mut();
    let status = vrampool_allocate(pool, black_box(bytes), ptr::null_mut(), Out::from(&mut address));
    assert_eq!(status, Status::OK);
    assert_eq!(vrampool_free(pool, black_box(address), ptr::null_mut()), Status::OK);
}

fn pairs(criterion: &mut Criterion) {
    for (name, options) in
        [("direct", c"device=host; source=direct"), ("virtual", c"device=host; source=virtual")]
    {
        let pool = pool(options);
        for bytes in [4 << 10, 256 << 10, 8 << 20] {
            criterion.bench_function(&format!("pair, {name}, {bytes} bytes"), |bench| {
                bench.iter(|| pair(pool, bytes))
            });
        }
    }
    let pool = pool(c"device=host; source=virtual");
    criterion.bench_function("512 live, each in turn, 4096 bytes", |bench| {
        let mut live: Vec<_> = (0..512).map(|_| allocated(pool)).collect();
        let mut next = 0;
        bench.iter(|| {
            assert_eq!(vrampool_free(pool, live[next], ptr::null_mut()), Status::OK);
            live[next] = allocated(pool);
            next = (next + 167) % live.len();
        });
        for address in live {
            assert_eq!(vrampool_free(pool, address, ptr::null_mut()), Status::OK);
        }
    });
    assert_eq!(vrampool_torch_configure(c"device=host".into()), Status::OK);
    for bytes in [4 << 10, 8 << 20] {
        criterion.bench_function(&format!("as PyTorch, {bytes} bytes"), |bench| {
            bench.iter(|| {
                let address = vrampool_torch_alloc(black_box(bytes), 0, ptr::null_mut());
                vrampool_torch_free(black_box(address), bytes, 0, ptr::null_mut());
            });
        });
    }
}

fn allocated(pool: u64) -> *mut std::ffi::c_void {
    let mut address = ptr::null_mut();
    assert_eq!(vrampool_allocate(pool, 4096, ptr::null_mut(), Out::from(&mut address)), Status::OK);
    address
}

criterion_group!(benches, pairs);
criterion_main!(benches);
