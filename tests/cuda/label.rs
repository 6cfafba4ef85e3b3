//! Metrics name a GPU as NVIDIA's own tools do, so that they join with those of its DCGM exporter.

use metrics_exporter_prometheus::PrometheusBuilder;
use vrampool::any::AnyDevice;
use vrampool::cuda::CudaDevice;
use vrampool::telemetry::publish;
use vrampool::{Backend, Pool};
use vrampool_test_support::require;

/// `GPU-`, and hexadecimal digits in groups of 8, 4, 4, 4 and 12.
fn is_uuid(label: &str) -> bool {
    let groups: Vec<&str> = label.strip_prefix("GPU-").unwrap_or_default().split('-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && groups.concat().chars().all(|digit| digit.is_ascii_digit() || ('a'..='f').contains(&digit))
}

fn label_of<B: Backend>(device: &B) -> String {
    let pool = Pool::builder(device).name("labelled").build().expect("a pool");
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || publish(&pool));
    let rendered = recorder.handle().render();
    let sample = rendered.lines().find(|line| line.starts_with("vrampool_held_bytes{")).expect("a sample");
    assert!(sample.contains("backend=\"cuda\""), "{sample}");
    let label = sample.split("device=\"").nth(1).and_then(|rest| rest.split('"').next());
    label.expect("a label").to_owned()
}

#[test]
fn the_label_of_a_gpu_is_its_uuid() {
    let Some(device) = require("cuda", || CudaDevice::open(0)) else { return };
    let label = label_of(&device);
    assert!(is_uuid(&label), "{label}");
    assert_eq!(Some(&label), device.listed().uuid_text().as_ref());
    assert_eq!(label_of(&AnyDevice::from(device)), label, "whichever way it was opened");
}
