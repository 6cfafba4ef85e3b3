//! Errors of a broker as text, statistics as JSON, and auto traits of its handles.

use vrampool::any::AnyDevice;
use vrampool::host::{Call, HostDevice, HostEvent};
use vrampool::{BackendError, Pool};
use vrampool_broker::{
    ArrayRequest, Broker, BrokerError, Client, ClientHandle, HostArray, Plan, Stager, Upload,
};

fn crosses_threads<T: Send + Sync + Unpin>() {}

#[test]
fn handles_and_errors_cross_threads() {
    crosses_threads::<Broker<AnyDevice>>();
    crosses_threads::<Broker<HostDevice>>();
    crosses_threads::<ClientHandle<HostDevice>>();
    crosses_threads::<Plan<HostDevice>>();
    crosses_threads::<HostArray<HostDevice>>();
    crosses_threads::<Stager<HostDevice>>();
    crosses_threads::<Upload<HostEvent>>();
    crosses_threads::<BrokerError>();
}

#[test]
fn an_error_and_its_causes_name_each_cause_once() {
    let device = HostDevice::builder().memory_limit(1 << 20).build();
    let broker = Broker::builder(&Pool::new(&device).expect("a pool")).build().expect("a broker");
    let client = broker.register(Client::new("client")).expect("a client");
    client.queue(ArrayRequest::scratch("array", [1000], 4)).expect("queued");
    let lost = BackendError::lost("unplugged");
    device.faults().fail_all(Call::Allocate, lost);
    let error = broker.commit("default").map(drop).expect_err("the device is lost");
    vrampool_test_support::assert_causes_once(&error);
    assert!(error.is_device_lost() && !error.is_unavailable(), "{error:?}");
    let wrapped = BrokerError::from(BackendError::unavailable("host", "no answer"));
    assert!(wrapped.is_unavailable() && wrapped.out_of_memory().is_none());
}

#[cfg(feature = "serde")]
#[test]
fn durations_are_nanoseconds_and_clients_have_their_names() {
    let mut report = vrampool_broker::RunReport::default();
    report.elapsed = std::time::Duration::from_micros(3);
    let json = serde_json::to_value(&report).expect("JSON");
    assert_eq!(json["elapsed_nanoseconds"], 3000, "{json}");
    let broker = Broker::builder(&Pool::new(&HostDevice::new()).expect("a pool")).build().expect("a broker");
    let _client = broker.register(Client::new("solver")).expect("a client");
    let json = serde_json::to_value(broker.clients()).expect("JSON");
    assert_eq!(json[0]["name"], "solver", "{json}");
    assert_eq!(json[0]["stats"]["held_bytes"], 0, "{json}");
}
