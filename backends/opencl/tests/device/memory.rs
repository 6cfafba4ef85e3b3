//! Where memory is, by what the driver says it was made with; what usages there are; mapping.

use crate::programs::Programs;
use crate::{BYTES, all_devices, copy, drained, fill, read};
use opencl3::memory::{
    CL_MEM_ALLOC_HOST_PTR, CL_MEM_COPY_HOST_PTR, CL_MEM_HOST_NO_ACCESS, CL_MEM_HOST_READ_ONLY,
    CL_MEM_HOST_WRITE_ONLY, CL_MEM_MAP_COUNT, CL_MEM_READ_ONLY, CL_MEM_READ_WRITE, CL_MEM_SVM_ATOMICS,
    CL_MEM_SVM_FINE_GRAIN_BUFFER, CL_MEM_USE_HOST_PTR, CL_MEM_WRITE_ONLY, get_mem_object_info,
};
use vrampool_backend::AllocationRequest;
use vrampool_opencl::{
    Backend, BackendError, DeviceKind, MemoryKind, OpenClDevice, OpenClMemory, OpenClStream, Placement,
    Region, RegionMut, Usage,
};
use vrampool_test_support::BackendExt;

fn of_usage(device: &OpenClDevice, placement: Placement, flags: u64) -> Result<OpenClMemory, BackendError> {
    device.allocate(&AllocationRequest::new(BYTES, MemoryKind::new(placement).with_usage(Usage(flags))))
}

/// How often the driver says that its buffer is mapped.
fn times_mapped(stream: &OpenClStream, memory: &OpenClMemory) -> u32 {
    let view = stream.view::<u8>(Region::whole(memory, stream)).expect("a view");
    get_mem_object_info(view.cl_mem(), CL_MEM_MAP_COUNT).expect("an answer").into()
}

/// As it is, and as if it were discrete.
fn both_kinds(device: &OpenClDevice) -> [OpenClDevice; 2] {
    let builder = OpenClDevice::builder(device.listed().ordinal);
    [device.clone(), builder.kind(DeviceKind::Discrete).build().expect("a device")]
}

#[test]
fn memory_is_the_hosts_where_host_and_device_share_one_and_the_devices_elsewhere() {
    for device in all_devices() {
        let placement = device.properties().preferred_placement();
        let memory = device.memory(BYTES, placement);
        let flags = memory.flags().expect("flags");
        match device.properties().kind {
            DeviceKind::Discrete => assert_eq!(flags, CL_MEM_READ_WRITE),
            _ => assert_eq!(flags, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR),
        }
        for device in both_kinds(&device) {
            let flags = |placement| of_usage(&device, placement, 0).expect("memory").flags().expect("flags");
            assert_eq!(flags(Placement::Device), CL_MEM_READ_WRITE);
            assert_eq!(flags(Placement::HostVisible), CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR);
        }
    }
}

#[test]
fn usages_reach_the_driver_and_nonsense_does_not() {
    const HOST: u64 = CL_MEM_ALLOC_HOST_PTR;
    for device in all_devices() {
        for (asked, found) in [
            (CL_MEM_READ_WRITE, CL_MEM_READ_WRITE),
            (CL_MEM_READ_ONLY, CL_MEM_READ_ONLY),
            (CL_MEM_WRITE_ONLY | HOST, CL_MEM_WRITE_ONLY | HOST),
            (CL_MEM_HOST_READ_ONLY, CL_MEM_HOST_READ_ONLY | CL_MEM_READ_WRITE),
            (CL_MEM_HOST_NO_ACCESS, CL_MEM_HOST_NO_ACCESS | CL_MEM_READ_WRITE),
        ] {
            let memory = of_usage(&device, Placement::Device, asked).expect("memory");
            assert_eq!(memory.flags().expect("flags"), found);
            assert_eq!(memory.kind().usage, Usage(asked), "the key is what was asked for");
        }
        let svm = CL_MEM_SVM_FINE_GRAIN_BUFFER;
        for (placement, flags) in [
            (Placement::Device, CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY),
            (Placement::Device, CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY),
            (Placement::Device, CL_MEM_USE_HOST_PTR),
            (Placement::Device, CL_MEM_COPY_HOST_PTR),
            (Placement::Device, svm),
            (Placement::Device, 1 << 40),
            (Placement::HostVisible, CL_MEM_HOST_NO_ACCESS),
            (Placement::HostVisible, u64::MAX),
        ] {
            let error = of_usage(&device, placement, flags).expect_err("it is nonsense");
            assert!(matches!(error, BackendError::InvalidArgument { argument: "usage", .. }), "{error}");
        }
        for flags in [CL_MEM_HOST_READ_ONLY, CL_MEM_SVM_ATOMICS | CL_MEM_USE_HOST_PTR] {
            let error = of_usage(&device, Placement::Managed, flags).expect_err("it is nonsense");
            assert!(!error.is_out_of_memory(), "{error}");
        }
    }
}

#[test]
fn the_host_keeps_to_what_it_said() {
    for device in all_devices() {
        let stream = device.stream();
        let mut bytes = vec![0; BYTES as usize];
        let refused = |answer: Result<(), BackendError>| {
            let error = answer.expect_err("it said that it would not");
            assert!(matches!(error, BackendError::InvalidArgument { argument: "memory", .. }), "{error}");
        };
        let written = of_usage(&device, Placement::HostVisible, CL_MEM_HOST_WRITE_ONLY).expect("memory");
        device.write_mapped(&written, 0, &bytes).expect("it writes");
        refused(device.read_mapped(&written, 0, &mut bytes));
        refused(device.download(&stream, Region::whole(&written, &stream), &mut bytes));
        let read = of_usage(&device, Placement::HostVisible, CL_MEM_HOST_READ_ONLY).expect("memory");
        fill(&device, &stream, &read, 5);
        device.synchronize(&stream).expect("a wait");
        device.read_mapped(&read, 0, &mut bytes).expect("it reads");
        assert_eq!(bytes, vec![5; BYTES as usize]);
        refused(device.write_mapped(&read, 0, &bytes));
        refused(device.upload(&stream, &bytes, RegionMut::whole(&read, &stream)));
        let hidden = of_usage(&device, Placement::Device, CL_MEM_HOST_NO_ACCESS).expect("memory");
        refused(device.download(&stream, Region::whole(&hidden, &stream), &mut bytes));
        assert!(matches!(device.read_mapped(&hidden, 0, &mut bytes), Err(BackendError::Unsupported { .. })));
    }
}

#[test]
fn a_devices_own_memory_is_not_mapped() {
    for device in all_devices() {
        let memory = of_usage(&device, Placement::Device, 0).expect("memory");
        for answer in [device.write_mapped(&memory, 0, &[1]), device.read_mapped(&memory, 0, &mut [1])] {
            assert!(matches!(answer, Err(BackendError::Unsupported { .. })), "{answer:?}");
        }
        let most = device.properties().max_allocation;
        let error = device
            .allocate(&AllocationRequest::new(most + 1, Placement::Device))
            .expect_err("it is too much");
        assert!(matches!(error, BackendError::InvalidArgument { argument: "bytes", .. }), "{error}");
    }
}

/// The sequence of a stager, on memory that stays mapped where that helps: write, copy on a stream, write again
/// when it is done.
#[test]
fn pinned_memory_is_written_and_copied_again_and_again() {
    for device in all_devices() {
        for device in both_kinds(&device) {
            let stream = device.stream();
            let (pinned, target) =
                (of_usage(&device, Placement::HostVisible, 0).expect("memory"), crate::memory(&device));
            let back = of_usage(&device, Placement::HostVisible, 0).expect("memory");
            for round in 0..20u8 {
                device.write_mapped(&pinned, 0, &vec![round; BYTES as usize]).expect("it is mapped");
                copy(&device, &stream, &pinned, &target);
                copy(&device, &stream, &target, &back);
                device.synchronize(&stream).expect("a wait");
                let mut bytes = vec![0; BYTES as usize];
                device.read_mapped(&back, 0, &mut bytes).expect("it is mapped");
                assert_eq!(bytes, vec![round; BYTES as usize]);
            }
        }
    }
}

#[test]
fn pinned_memory_may_drop_while_it_is_copied() {
    for device in all_devices() {
        for device in both_kinds(&device) {
            let programs = Programs::new(&device);
            let (stream, target) = (device.stream(), crate::memory(&device));
            for round in 0..20u8 {
                let pinned = of_usage(&device, Placement::HostVisible, 0).expect("memory");
                device.write_mapped(&pinned, 0, &vec![round; BYTES as usize]).expect("it is mapped");
                programs.set_slowly(&stream, &target, 0xFF, 3);
                copy(&device, &stream, &pinned, &target);
                drop(pinned);
                let next = of_usage(&device, Placement::HostVisible, 0).expect("memory");
                device.write_mapped(&next, 0, &vec![0xEE; BYTES as usize]).expect("it is mapped");
                assert_eq!(read(&device, &stream, &target), vec![round; BYTES as usize]);
            }
            drained(&device);
        }
    }
}

/// A kernel, a fill or a copy to itself takes memory out of its mapping; ranges of it are written before and
/// after.
#[test]
fn pinned_memory_serves_kernels_and_ranges_of_it_the_host() {
    let half = BYTES as usize / 2;
    for device in all_devices() {
        for device in both_kinds(&device) {
            let programs = Programs::new(&device);
            let [one, two] = [0; 2].map(|_| device.stream());
            for way in 0..4 {
                let pinned = of_usage(&device, Placement::HostVisible, 0).expect("memory");
                let target = crate::memory(&device);
                device.write_mapped(&pinned, 0, &vec![3; 2 * half]).expect("it is mapped");
                // Still reads the mapping when a kernel wants the buffer.
                programs.set_slowly(&one, &target, 1, 3);
                copy(&device, &one, &pinned, &target);
                if device.properties().kind != DeviceKind::Discrete {
                    device.wait(&two, &device.record(&one).expect("an event")).expect("a wait");
                }
                // Elsewhere the mapping is taken back behind that copy, and what follows comes after that.
                let whole = RegionMut::whole(&pinned, &two);
                match way {
                    0 => programs.set_slowly(&two, &pinned, 4, 1),
                    1 => device.fill(&two, whole, 4).expect("a fill"),
                    2 => device.upload(&two, &vec![4; 2 * half], whole).expect("an upload"),
                    _ => {
                        let back = of_usage(&device, Placement::HostVisible, 0).expect("memory");
                        device.write_mapped(&back, 0, &vec![4; 2 * half]).expect("it is mapped");
                        copy(&device, &two, &back, &pinned);
                    }
                }
                assert_eq!(read(&device, &one, &target), vec![3; 2 * half]);
                device.synchronize(&two).expect("a wait");
                assert_eq!(times_mapped(&two, &pinned), 0, "a kernel's memory is not mapped");
                device.write_mapped(&pinned, 0, &vec![5; half]).expect("it is mapped");
                copy(&device, &two, &pinned, &target);
                let bytes = read(&device, &two, &target);
                assert!(bytes[..half].iter().all(|&byte| byte == 5), "{way}");
                assert!(bytes[half..].iter().all(|&byte| byte == 4), "{way}");
            }
        }
    }
}
