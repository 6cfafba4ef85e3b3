//! Objects of one kind, by the numbers that C has.

use crate::failure::{Failure, Status};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// All objects of one kind, by number.
pub(crate) struct Numbered<T> {
    objects: Mutex<BTreeMap<u64, Arc<T>>>,
    kind: &'static str,
    /// What ends one, for errors.
    ended: &'static str,
}

impl<T> Numbered<T> {
    pub(crate) const fn new(kind: &'static str, ended: &'static str) -> Self {
        Self { objects: Mutex::new(BTreeMap::new()), kind, ended }
    }

    pub(crate) fn add(&self, value: Arc<T>) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: only distinctness matters.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.objects.lock().insert(number, value);
        number
    }

    pub(crate) fn get(&self, number: u64) -> Result<Arc<T>, Failure> {
        self.objects.lock().get(&number).cloned().ok_or_else(|| self.none(number))
    }

    pub(crate) fn remove(&self, number: u64) -> Result<Arc<T>, Failure> {
        self.objects.lock().remove(&number).ok_or_else(|| self.none(number))
    }

    pub(crate) fn all(&self) -> Vec<(u64, Arc<T>)> {
        self.objects.lock().iter().map(|(&number, value)| (number, Arc::clone(value))).collect()
    }

    #[cold]
    fn none(&self, number: u64) -> Failure {
        let Self { kind, ended, .. } = self;
        let text = format!("there is no {kind} {number}: it was never created, or was {ended}");
        Failure::new(Status::INVALID_HANDLE, text)
    }
}
