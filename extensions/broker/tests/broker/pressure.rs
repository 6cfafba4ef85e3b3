//! Whose memory is taken back, and when.

use super::{MIB, Squarer, broker, device, pool};
use vrampool::backend::AllocationRequest;
use vrampool::host::{Call, HostDevice};
use vrampool::{Backend, BackendError, Placement};
use vrampool_broker::{ArrayRequest, Broker, BrokerError, Chunk, Client, ClientHandle, HostBacking, Share};

/// A client in a group of its name, with one array that cannot be cut.
fn holder(broker: &Broker<HostDevice>, name: &str, bytes: u64) -> ClientHandle<HostDevice> {
    let client = broker.register(Client::new(name).group(name)).expect("a client");
    client.queue(ArrayRequest::scratch("x", [bytes], 1).chunk_axis(None)).expect("queued");
    client
}

/// Each attempt asks for less, until that is less than a run takes: what is reported is the refusal.
#[test]
fn a_device_that_refuses_whatever_is_asked_for_is_out_of_memory() {
    let device = device(10 * MIB);
    let (broker, _) = broker(&device);
    let squarer = Squarer::new(&broker, Client::new("client"), 1000);
    device.faults().fail_all(Call::Allocate, BackendError::out_of_memory(0, None));
    for runs in [1, 16, 1000] {
        broker.set_chunk_runs("default", runs).expect("idle");
        let error = broker.commit("default").expect_err("the device refuses");
        assert!(error.out_of_memory().is_some(), "{error}");
    }
    assert_eq!(squarer.client.stats().held_bytes, 0);
    device.faults().clear();
    assert!(broker.commit("default").is_ok());
}

#[test]
fn a_running_plan_is_not_evicted() {
    let (broker, _) = broker(&device(10 * MIB));
    let running = Squarer::new(&broker, Client::new("running").group("running"), 1_000_000);
    let plan = broker.commit("running").expect("it fits");
    let _needy = holder(&broker, "needy", 6 * MIB);
    let refused = |_: &Chunk<'_, _>, _: &_| {
        assert!(broker.commit("needy").is_err_and(|error| error.is_out_of_memory()));
        Ok(())
    };
    running.run_with(&plan, |_| (), refused).expect("a run");
    assert_eq!(running.client.stats().evictions, 0);
    assert!(broker.commit("needy").is_ok());
}

#[test]
fn test_pressure_evicts_only_required_lru_owner() {
    let (broker, _) = broker(&device(12 * MIB));
    let names = ["old", "middle", "young"];
    let clients = names.map(|name| holder(&broker, name, 4 * MIB));
    let [old, middle, young] = names.map(|name| broker.commit(name).expect("it fits"));
    // The client that worked longest ago is `middle` then.
    for plan in [middle, young, old] {
        plan.run(|_, _| Ok(())).expect("a run");
    }
    let _needy = holder(&broker, "needy", 3 * MIB);
    broker.commit("needy").expect("one releases memory");
    assert_eq!(clients.map(|client| client.stats().evictions), [0, 1, 0]);
}

/// CuBIE refused clients without a callback (`test_queue_request_requires_live_invalidate_hook`), whose
/// arrays would have been freed under their hands. Ours do not: a plan gets memory anew.
#[test]
fn a_client_without_callbacks_is_served_and_evicted_like_any() {
    let (broker, _) = broker(&device(10 * MIB));
    let silent = broker.register(Client::new("silent").group("silent")).expect("a client");
    silent.queue(ArrayRequest::scratch("x", [6 * MIB], 1)).expect("queued");
    let plan = broker.commit("silent").expect("it fits");
    let needy = holder(&broker, "needy", 6 * MIB);
    broker.commit("needy").expect("it fits when the other releases memory");
    assert_eq!((silent.stats().evictions, silent.stats().held_bytes), (1, 0));
    drop(needy);
    plan.run(|_, _| Ok(())).expect("it gets memory anew");
}

/// CuBIE's #621, too: a solver whose results were in files lost its device memory to another, and then them.
#[test]
fn test_idle_solver_evicted_under_pressure_and_self_heals() {
    let (broker, _) = broker(&device(MIB));
    let one = Squarer::new(&broker, Client::new("one").group("one"), 200_000);
    let two = Squarer::new(&broker, Client::new("two").group("two"), 200_000);
    let (first, second) = (broker.commit("one").expect("it fits"), broker.commit("two").expect("it fits"));
    let numbers = super::numbers(200_000);
    let mut results = broker.host_array_in(800_000, HostBacking::File).expect("an array");
    for round in 1..=5 {
        let run = first.execution().upload(one.from, &numbers[..]).download(one.to, &mut results);
        run.run(|chunk, stream| one.work(chunk, stream)).expect("a run");
        two.run(&second).expect("a run");
        // Each took the other's memory. Results in a file stay.
        assert!(one.client.stats().evictions >= round, "round {round}");
        let view = results.view::<f32>(..).expect("read");
        assert!(super::floats(&numbers).zip(view.iter()).all(|(from, to)| *to == from * from));
    }
    assert_eq!(broker.device().races(), 0);
}

/// CuBIE #593 and #620: what former solvers had held was found at the next registration, or never.
#[test]
fn test_dead_instances_release_at_once() {
    let device = device(10 * MIB);
    let (broker, _) = broker(&device);
    let client = holder(&broker, "former", 6 * MIB);
    let plan = broker.commit("former").expect("it fits");
    drop(client);
    assert_eq!((broker.stats().held_bytes, broker.stats().clients), (0, 0));
    assert!(matches!(plan.run(|_, _| Ok(())), Err(BrokerError::NothingQueued { .. })));
    let _next = holder(&broker, "next", 9 * MIB);
    broker.commit("next").expect("all is free");
    drop((plan, broker));
    assert_eq!(device.memory_info().expect("figures").free_bytes, MIB, "a client keeps its broker");
}

/// Memory that the pool reuses may still be in use.
#[test]
fn what_was_in_use_is_waited_for() {
    for _ in 0..20 {
        let device = device(4 * MIB);
        // Blocks enough not to wait for one.
        let broker = Broker::builder(&pool(&device)).staging(64 << 10, 2 * MIB).build().expect("a broker");
        let squarer = Squarer::new(&broker, Client::new("client"), 100_000);
        let other = device.create_stream().expect("a stream");
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let mut before = broker.pool().allocate(400_000, &other).expect("memory");
        other.launch([], [], move |[], []: [&mut [u8]; 0]| _ = wait.recv()).expect("queued");
        device.fill(&other, before.on_mut(&other).expect("a region"), 0xFF).expect("queued");
        drop(before);
        let plan = broker.commit("default").expect("it fits");
        let open = |_: &Chunk<'_, _>, _: &_| {
            go.send(()).expect("the kernel waits");
            Ok(())
        };
        squarer.run_with(&plan, |_| (), open).expect("a run");
        assert_eq!(device.races(), 0);
    }
}

#[test]
fn memory_that_goes_between_the_question_and_the_allocation_makes_chunks_finer() {
    let device = device(10 * MIB);
    let (broker, _) = broker(&device);
    let client = broker.register(Client::new("client")).expect("a client");
    client.queue(ArrayRequest::scratch("x", [20 * MIB], 1)).expect("queued");
    for failures in 1..4 {
        // A pool asks three times.
        for nth in 1..=3 * failures {
            let error = BackendError::out_of_memory(0, None);
            device.faults().fail_nth_with(Call::Allocate, nth, error);
        }
        client.queue(ArrayRequest::scratch("x", [20 * MIB], 1)).expect("queued");
        let plan = broker.commit("default").expect("it fits in smaller chunks");
        let partition = plan.partition();
        assert!(partition.chunk_len() < 10 * MIB && partition.chunks() > 2, "{failures}: {partition:?}");
        device.faults().clear();
        broker.evict_all().expect("idle");
    }
    // Another failure is one.
    device.faults().fail_nth(Call::Allocate, 1);
    client.queue(ArrayRequest::scratch("x", [20 * MIB], 1)).expect("queued");
    assert!(matches!(broker.commit("default"), Err(BrokerError::Memory(_))));
    assert_eq!((client.stats().held_bytes, broker.stats().held_bytes), (0, 0));
    assert!(broker.commit("default").is_ok(), "what was queued still is");
}

/// Three clients, many requests: no share is exceeded, no client starves, and all memory is returned.
#[test]
fn three_clients_of_different_shares_under_pressure() {
    const REQUESTS: u64 = 100_000;
    let device = device(64 * MIB);
    let (broker, _) = broker(&device);
    let shares = [0.2, 0.3, 0.4];
    // Of what the shares promise together an 8th is not there.
    let others = device.allocate(&AllocationRequest::new(64 * MIB / 5, Placement::Device)).expect("memory");
    // No client has ended before all have what they want.
    let served: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = shares
            .into_iter()
            .enumerate()
            .map(|(number, share)| {
                let broker = &broker;
                scope.spawn(move || {
                    let group = format!("group {number}");
                    let client = Client::new(&*group).group(&group).share(Share::Fixed(share));
                    let client = broker.register(client).expect("a client");
                    let mut rng = fastrand::Rng::with_seed(number as u64);
                    let mut served = 0;
                    while served < REQUESTS / 3 + 1 {
                        // Up to 32 arrays a commit, all together up to twice the share.
                        let count = rng.u64(1..=32);
                        for label in 0..count {
                            // Up to a 16th of the share, of a few sizes, as arrays are.
                            let bytes = client.stats().cap_bytes / 128 * rng.u64(1..=8);
                            let request = ArrayRequest::scratch(label.to_string(), [64, bytes / 64 + 1], 1);
                            client.queue(request).expect("queued");
                        }
                        match broker.commit(&group) {
                            Ok(plan) => assert!(plan.partition().runs() == 64),
                            Err(error) => panic!("{group} starves: {error}"),
                        }
                        let stats = client.stats();
                        assert!(stats.peak_held_bytes <= stats.cap_bytes, "{stats:?}");
                        served += count;
                    }
                    (served, client)
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
    });
    let total: u64 = served.iter().map(|(served, _)| served).sum();
    let counts = broker.stats().counts;
    assert!(total > REQUESTS && counts.evictions > 0 && counts.commits_short == 0, "{counts:?}");
    drop((others, served));
    assert_eq!((broker.stats().held_bytes, broker.stats().clients), (0, 0));
    broker.pool().trim().expect("a trim");
    assert_eq!(device.memory_info().expect("figures").free_bytes, 64 * MIB);
}
