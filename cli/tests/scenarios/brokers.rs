//! Clients of brokers.

use crate::stage::{MIB, Scene, Stage};
use std::thread;
use std::time::Duration;
use vrampool::Pool;
use vrampool::host::HostDevice;
use vrampool_broker::{ArrayRequest, Broker, Client, ClientHandle, Share};

pub(crate) const SCENES: &[Scene] = &[
    Scene::new("l_all_clients_work", &[], all_work),
    Scene::new("l_two_of_three_get_nothing", &["BrokerShort", "BrokerStarving"], two_get_nothing),
    Scene::new("l_runs_fail", &["BrokerRunsFailing"], runs_fail),
];

fn broker(stage: &Stage) -> Broker<HostDevice> {
    let device = HostDevice::builder().memory_limit(64 * MIB).build();
    Broker::builder(&Pool::new(&device).expect("a pool")).name(stage.name).build().expect("a broker")
}

fn client(broker: &Broker<HostDevice>, name: &str, share: f64) -> ClientHandle<HostDevice> {
    broker.register(Client::new(name).group(name).share(Share::Fixed(share))).expect("a client")
}

/// Queues rows of a length, and runs them. Returns whether that worked; what failed stays queued.
fn work(broker: &Broker<HostDevice>, client: &ClientHandle<HostDevice>, row: u64, fails: bool) -> bool {
    let request = ArrayRequest::scratch("rows", [8, row], 1).chunk_axis(0);
    if client.stats().queued == 0 {
        client.queue(request).expect("a request");
    }
    let Ok(plan) = broker.commit(client.name()) else { return false };
    let result = plan.run(|_, _| {
        if fails { Err(vrampool::BackendError::driver("run", 1, "a fault").into()) } else { Ok(()) }
    });
    result.is_ok()
}

fn all_work(stage: &Stage) {
    let broker = broker(stage);
    let _process = stage.serve().and(&broker);
    let clients = ["one", "two", "three"].map(|name| client(&broker, name, 0.3));
    stage.every(Duration::from_millis(200), || {
        clients.iter().for_each(|client| assert!(work(&broker, client, MIB, false)));
    });
}

fn two_get_nothing(stage: &Stage) {
    let broker = broker(stage);
    let _process = stage.serve().and(&broker);
    let works = client(&broker, "works", 0.5);
    let starve = ["starves", "starves too"].map(|name| client(&broker, name, 0.05));
    thread::scope(|scope| {
        scope
            .spawn(|| stage.every(Duration::from_millis(200), || assert!(work(&broker, &works, MIB, false))));
        stage.every(Duration::from_millis(200), || {
            starve.iter().for_each(|client| assert!(!work(&broker, client, 8 * MIB, false)));
        });
    });
}

fn runs_fail(stage: &Stage) {
    let broker = broker(stage);
    let _process = stage.serve().and(&broker);
    let client = client(&broker, "fails", 0.5);
    stage.every(Duration::from_secs(1), || assert!(!work(&broker, &client, MIB, true)));
}
