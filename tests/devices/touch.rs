//! Marks that a device writes to identify memory are found whole, and every wrong byte is counted; without this
//! no test here could fail.

use crate::there;
use vrampool::backend::AllocationRequest;
use vrampool::{Backend, Placement, Region, RegionMut};

#[test]
fn a_pattern_is_found_whole_and_every_wrong_byte_is_counted() {
    there::on_each(|there| {
        let [stream] = there.streams();
        for bytes in [1u64, 3, 4, 5, 4099, 1 << 20] {
            let name = &there.name;
            let memory = there
                .device
                .allocate(&AllocationRequest::new(there.rounded(bytes), Placement::Device))
                .expect("memory");
            there.write(&stream, RegionMut::new(&memory, 0, bytes, &stream).expect("a region"), 7);
            let mismatches = |seed| {
                let count = there.count(&stream);
                count.verify(Region::new(&memory, 0, bytes, &stream).expect("a region"), seed);
                count.read()
            };
            assert_eq!(mismatches(7), 0, "{name}, {bytes}");
            if bytes > 5 {
                assert!(mismatches(8) > bytes * 9 / 10, "{name}, {bytes}");
            }
            let mut written = vec![0; there.rounded(bytes) as usize];
            there.device.download(&stream, Region::whole(&memory, &stream), &mut written).expect("a copy");
            for place in [0, bytes / 2, bytes - 1] {
                let mut spoilt = written.clone();
                spoilt[place as usize] ^= 0x40;
                there.device.upload(&stream, &spoilt, RegionMut::whole(&memory, &stream)).expect("a copy");
                assert_eq!(mismatches(7), 1, "{name}, {bytes}, {place}");
            }
        }
    });
}
