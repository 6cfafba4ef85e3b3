//! A batch larger than its share goes through every device in chunks, on one stream and on several, and comes
//! out whole.

use vrampool::any::{self, AnyDevice, DeviceListing};
use vrampool::backend::Capabilities;
use vrampool::{Backend, Memory, Pool, Source};
use vrampool_broker::{ArrayRequest, Broker, Client, HostBacking, Role, Share, Stager, Upload};
use vrampool_test_support::skip_backend;

const MIB: u64 = 1 << 20;

/// Runs `test` on every device, or those of the backends that `VRAMPOOL_TEST_BACKENDS`, a list separated by commas,
/// names. A backend without a device is reported, and is a failure where `VRAMPOOL_REQUIRE` names it.
fn on_each(test: impl Fn(&str, &AnyDevice)) {
    let devices = any::devices();
    devices.absent.iter().for_each(|absent| skip_backend(absent.backend, &absent.reason));
    let only = std::env::var("VRAMPOOL_TEST_BACKENDS").unwrap_or_default();
    let is_wanted = |backend| only.is_empty() || only.split(',').any(|wanted| wanted == backend);
    for DeviceListing { name, .. } in devices.there.into_iter().filter(|listed| is_wanted(listed.backend)) {
        eprintln!("on {name}");
        test(&name, &any::open(&name).expect("it is there"));
    }
}

#[test]
fn what_goes_through_in_chunks_comes_out_whole() {
    on_each(|name, device| {
        // 4 bytes a run, in rows along three axes, one of them of no round number.
        for (axis, mut shape) in [(0, [300_001_u64, 2, 1]), (1, [3, 150_001, 1]), (2, [5, 7, 20_003])] {
            let broker = Broker::builder(&Pool::new(device).expect("a pool"))
                .staging(MIB / 4, MIB)
                .build()
                .expect("a broker");
            // So many that half of an array holds a granule of each array on each of three streams.
            let least = 2 * 6 * broker.granularity();
            let run_bytes = shape.iter().product::<u64>() / shape[axis] * 4;
            shape[axis] = shape[axis].max(least.div_ceil(run_bytes) | 1);
            let bytes = shape[axis] * run_bytes;
            let data: Vec<u8> = (0..bytes).map(|index| (index * 7 % 251) as u8).collect();
            // A quarter of both arrays.
            let client = Client::new("client").share(Share::Bytes(bytes / 2));
            let client = broker.register(client).expect("a client");
            let queue = |role, label| {
                let request = ArrayRequest::new(role, label, shape, 4).chunk_axis(axis);
                client.queue(request).expect("queued")
            };
            let (from, to) = (queue(Role::Input, "from"), queue(Role::Output, "to"));
            for (streams, backing) in [
                (1, HostBacking::Pageable),
                (3, HostBacking::Pageable),
                (3, HostBacking::Pinned),
                (2, HostBacking::File),
            ] {
                broker.set_streams("default", streams).expect("idle");
                let plan = broker.commit("default").expect("it fits in parts");
                let mut source = broker.host_array_in(bytes, backing).expect("an array");
                let mut sink = broker.host_array_in(bytes, backing).expect("an array");
                source.write_at(&data, 0).expect("written");
                let report = plan
                    .execution()
                    .upload(from, &source)
                    .download(to, &mut sink)
                    .run(|chunk, stream| {
                        Ok(device.copy(stream, chunk.region(from)?, chunk.region_mut(to)?)?)
                    })
                    .expect("a run");
                let mut out = vec![0; data.len()];
                sink.read_at(&mut out, 0).expect("read");
                let what = format!("{name}, axis {axis}, {streams} streams, {backing:?}");
                assert!(out == data, "{what}");
                assert!(report.chunks >= 4 && report.streams == streams, "{what}: {report:?}");
                let stats = client.stats();
                assert!(
                    stats.peak_held_bytes <= stats.cap_bytes && stats.cap_bytes == bytes / 2,
                    "{what}: {stats:?}"
                );
                assert!(broker.stats().peak_staging_bytes <= MIB, "{what}");
            }
        }
    });
}

#[test]
fn every_source_that_a_device_has_serves() {
    on_each(|name, device| {
        for &source in Source::ALL {
            let pool = match Pool::builder(device).source(source).limit(64 * MIB).build() {
                Ok(pool) => pool,
                Err(error) => {
                    assert!(matches!(source, Source::Virtual | Source::Driver), "{error}");
                    vrampool_test_support::skipped(format_args!("{source}: {error}"));
                    continue;
                }
            };
            let broker = Broker::builder(&pool).build().expect("a broker");
            // A granule for each of two streams; and more than goes through at once.
            let share = MIB.max(2 * broker.granularity());
            let runs = share * 2 / 5;
            let client = broker.register(Client::new("client").share(Share::Bytes(share))).expect("a client");
            let array = client.queue(ArrayRequest::in_out("x", [runs], 4)).expect("queued");
            broker.set_streams("default", 2).expect("idle");
            let plan = broker.commit("default").expect("it fits in parts");
            for _ in 0..3 {
                let mut bytes = vec![9; 4 * runs as usize];
                let execution = plan.execution().exchange(array, &mut bytes[..]);
                let filled =
                    execution.run(|chunk, stream| Ok(device.fill(stream, chunk.region_mut(array)?, 7)?));
                assert!(filled.expect("a run").chunks > 1, "{name}, {source}");
                assert!(bytes.iter().all(|&byte| byte == 7), "{name}, {source}");
            }
            let (stats, held) = (pool.stats(), client.stats().held_bytes);
            assert!(stats.live_bytes > 0 && stats.live_bytes <= held, "{name}, {source}");
        }
    });
}

/// A slot of the round before serves each round, because each waits for its copy.
#[test]
fn a_stager_uploads_in_order_through_pinned_memory() {
    on_each(|name, device| {
        let stream = device.create_stream().expect("a stream");
        let pool = Pool::builder(device).build().expect("a pool");
        let stager = Stager::with_max_bytes(device, 8 * MIB);
        let mut target = pool.allocate(MIB, &stream).expect("memory");
        let can_stage = device.properties().capabilities.contains(Capabilities::HOST_VISIBLE);
        for round in 0..40u8 {
            let source = vec![round; MIB as usize];
            let upload = stager.upload(&source, target.on_mut(&stream).expect("a region"), &stream);
            let is_staged = matches!(upload.expect("an upload"), Upload::Staged(_));
            assert!(is_staged == can_stage || round > 0, "{name}: the first has a slot");
            drop(source);
            let mut found = vec![0; target.memory().len().min(MIB) as usize];
            target.read(&mut found, &stream).expect("a copy");
            assert!(found.iter().all(|&byte| byte == round), "{name}, round {round}");
        }
        assert!(stager.pinned_bytes() <= 8 * MIB, "{name}");
    });
}
