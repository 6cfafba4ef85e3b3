//! Properties of every kind of memory, and of pairs of arenas.

use super::{KB, MB, Setup, contents, discrete};
use vrampool::arena::ArenaError;
use vrampool::backend::MemoryKind;
use vrampool::host::HostDevice;
use vrampool::{Backend, Memory, Placement};

/// A kind of cuArena's memory.
#[derive(Clone, Copy)]
enum Kind {
    Device,
    Managed,
    Pinned,
    Pageable,
}

const ALL: [Kind; 4] = [Kind::Device, Kind::Managed, Kind::Pinned, Kind::Pageable];
const POOL: u64 = 256 * MB;

impl Kind {
    fn setup(self, limit: u64) -> Setup {
        let placement = self.placement();
        match self {
            Self::Pageable => {
                Setup::on(HostDevice::builder().memory_limit(1 << 30).build(), |builder| builder.limit(limit))
            }
            _ => Setup::on(discrete(), |builder| builder.limit(limit).memory(placement)),
        }
    }

    fn placement(self) -> Placement {
        match self {
            Self::Device => Placement::Device,
            Self::Managed => Placement::Managed,
            Self::Pinned | Self::Pageable => Placement::HostVisible,
        }
    }
}

/// cuArena has an error type for each side; here the arena reports what it lacks, and its kind says of which memory.
#[test]
fn exhaustion_throws() {
    for kind in ALL {
        let setup = kind.setup(4 * MB);
        assert_eq!(setup.arena.kind(), MemoryKind::from(kind.placement()));
        let error = setup.arena.allocate(32 * MB, &setup.stream).expect_err("more than there is");
        assert!(error.is_out_of_memory());
        let Some(&ArenaError::NoSpace { bytes, available_bytes: available, largest_bytes: largest, .. }) =
            error.arena()
        else {
            panic!("{error}");
        };
        assert_eq!((bytes, available, largest), (32 * MB, 4 * MB, 4 * MB));
        assert_eq!(setup.allocate(4 * MB).capacity(), 4 * MB, "all of it is still to be had");
    }
}

/// Through a stream, and through the host's mapping of the same bytes.
#[test]
fn read_write() {
    for kind in ALL.into_iter().skip(1) {
        let setup = kind.setup(POOL);
        let mut buffer = setup.arena.allocate(16, &setup.stream).expect("memory");
        let values: Vec<u8> = [10i32, 20, 30, 40].iter().flat_map(|value| value.to_le_bytes()).collect();
        buffer.write(&values, &setup.stream).expect("no fault");
        assert!(buffer.write(&[0; 17], &setup.stream).is_err(), "beyond its length");
        assert_eq!(contents(&buffer, &setup.stream), values);
        let offset = buffer.offset().expect("live");
        let mut mapped = [0; 16];
        setup.device.read_mapped(&buffer.memory(), offset, &mut mapped).expect("the host sees it");
        assert_eq!(mapped[..], values);
        setup.device.write_mapped(&buffer.memory(), offset, &[7; 16]).expect("the host sees it");
        assert_eq!(contents(&buffer, &setup.stream), [7; 16]);
    }
}

/// The host's own memory is as aligned as the arena says, also where the pool is small.
#[test]
fn every_kind_is_aligned_as_it_says() {
    for kind in ALL {
        for limit in [KB, 60 * KB, POOL] {
            let setup = kind.setup(limit);
            let base = setup.arena.base().expect("the host has addresses");
            assert_eq!(base % setup.arena.alignment(), 0);
            let buffers = [setup.allocate(1), setup.allocate(65), setup.allocate(1)];
            for buffer in &buffers {
                let region = buffer.on(&setup.stream).expect("live");
                assert_eq!(region.address().expect("an address") % setup.arena.alignment(), 0);
                assert_eq!(Some(base), buffer.memory().address());
            }
        }
    }
}
