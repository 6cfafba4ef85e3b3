//! Log messages go to a thread's subscriber of `tracing` with their level, target and text, and to `log` on other
//! threads: to each program once.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::thread;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use vrampool::arena::DeviceArena;
use vrampool::host::HostDevice;
use vrampool_test_support as _;

/// Level, target and text of a message.
type Message = (String, String, String);

static LOGGED: Mutex<Vec<Message>> = Mutex::new(Vec::new());

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let message = (record.level().to_string(), record.target().into(), record.args().to_string());
        LOGGED.lock().expect("no panic").push(message);
    }

    fn flush(&self) {}
}

#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Message>>>);

/// The text of an event.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        assert_eq!(field.name(), "message");
        self.0 = format!("{value:?}");
    }
}

impl Subscriber for Collector {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let (metadata, mut text) = (event.metadata(), Text::default());
        event.record(&mut text);
        let message = (metadata.level().to_string(), metadata.target().into(), text.0);
        self.0.lock().expect("no panic").push(message);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Makes an arena, which logs a few messages.
fn arena(device: &HostDevice) {
    drop(DeviceArena::builder(device).limit(1 << 20).build().expect("an arena"));
}

#[test]
fn each_message_goes_to_the_subscriber_or_else_to_the_log() {
    log::set_logger(&Logger).expect("the only one");
    log::set_max_level(log::LevelFilter::Trace);
    let device = HostDevice::new();
    let logged = || std::mem::take(&mut *LOGGED.lock().expect("no panic"));

    arena(&device);
    let expected = logged();
    let (level, target, text) = expected.first().expect("a message");
    assert_eq!((level.as_str(), target.as_str()), ("INFO", "vrampool::heap::arena::builder"));
    assert!(text.contains("1048576 bytes reserved"), "{text}");

    let collector = Collector::default();
    let traced = || std::mem::take(&mut *collector.0.lock().expect("no panic"));
    tracing::subscriber::with_default(collector.clone(), || {
        arena(&device);
        let events = traced();
        assert_eq!((events.first(), events.len(), logged().len()), (expected.first(), expected.len(), 0));
        thread::scope(|scope| scope.spawn(|| arena(&device)).join()).expect("no panic");
        assert_eq!((traced(), logged().len()), (Vec::new(), expected.len()), "a thread without a subscriber");
    });
    arena(&device);
    assert_eq!((traced(), logged().len()), (Vec::new(), expected.len()), "the subscriber ended");
}
