//! In place of `recording` and `traces`, where the library is built without the feature `trace`.

pub(crate) mod recording {
    use crate::blocks::{Held, Loan};
    use vrampool::backend::StreamId;

    #[derive(Debug, Default)]
    pub(crate) struct Recording {}

    #[derive(Debug, Clone, Copy, Default)]
    pub(crate) struct Note;

    impl Recording {
        pub(crate) fn note(&self, _: StreamId, _: &Loan) -> Note {
            Note
        }
    }

    impl Note {
        pub(crate) fn freed(self, _: &Held) {}
    }
}

pub(crate) mod traces {
    use crate::failure::{Failure, Status};
    use serde_json::Value;

    fn none<T>() -> Result<T, Failure> {
        Err(Failure::new(Status::UNSUPPORTED, "this library was built without the feature `trace`"))
    }

    pub(crate) fn start(_: u64, _: u64) -> Result<(), Failure> {
        none()
    }

    pub(crate) fn look(_: u64) -> Result<(u64, u64), Failure> {
        none()
    }

    pub(crate) fn stop(_: u64, _: bool) -> Result<(u64, u64), Failure> {
        none()
    }

    pub(crate) fn load(_: &str, _: Option<&str>, _: i32) -> Result<u64, Failure> {
        none()
    }

    pub(crate) fn save(_: u64, _: &str, _: Option<&str>) -> Result<(), Failure> {
        none()
    }

    pub(crate) type Place<'a> = (&'a str, Option<&'a str>);

    pub(crate) fn convert(_: Place<'_>, _: i32, _: Place<'_>) -> Result<(u64, Value), Failure> {
        none()
    }

    pub(crate) fn show(_: u64) -> Result<Value, Failure> {
        none()
    }

    pub(crate) fn free(_: u64) -> Result<(), Failure> {
        none()
    }
}
