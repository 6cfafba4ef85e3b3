//! The memory capacity of a device, and the allocations that wait for memory.

#[cfg(target_os = "linux")]
use crate::account::Account;
use parking_lot::{Condvar, Mutex};
use vrampool_backend::BackendError;

/// Bytes of a device: all, taken, and taken by memory that is dropped but still in use by queued work.
#[derive(Debug)]
pub(crate) struct Capacity {
    bytes: Mutex<Bytes>,
    freed: Condvar,
    /// The account that other processes share with this one.
    #[cfg(target_os = "linux")]
    account: std::sync::OnceLock<Account>,
}

#[derive(Debug)]
struct Bytes {
    total: u64,
    taken: u64,
    dropped: u64,
}

impl Capacity {
    pub(crate) fn new(total: u64) -> Self {
        Self {
            bytes: Mutex::new(Bytes { total, taken: 0, dropped: 0 }),
            freed: Condvar::new(),
            #[cfg(target_os = "linux")]
            account: std::sync::OnceLock::new(),
        }
    }

    pub(crate) fn set_total(&self, total: u64) {
        self.bytes.lock().total = total;
        self.freed.notify_all();
    }

    /// Counts with the others of `account` from now on; once.
    #[cfg(target_os = "linux")]
    pub(crate) fn share(&self, account: Account) -> Result<(), BackendError> {
        let bytes = self.bytes.lock();
        account.turn()?.set_own(bytes.taken)?;
        self.account
            .set(account)
            .map_err(|_| BackendError::invalid("directory", "the device counts with others already"))
    }

    /// (free, total)
    pub(crate) fn info(&self) -> Result<(u64, u64), BackendError> {
        let bytes = self.bytes.lock();
        let free = bytes.total.saturating_sub(bytes.taken);
        #[cfg(target_os = "linux")]
        if let Some(account) = self.account.get() {
            return Ok((free.saturating_sub(account.turn()?.others()?), bytes.total));
        }
        Ok((free, bytes.total))
    }

    /// Takes bytes, after waiting for dropped memory where that may help and `may_wait`.
    pub(crate) fn take(&self, requested: u64, may_wait: bool) -> Result<(), BackendError> {
        let mut bytes = self.bytes.lock();
        loop {
            let free = bytes.total.saturating_sub(bytes.taken);
            #[cfg(target_os = "linux")]
            let turn = self.account.get().map(Account::turn).transpose()?;
            #[cfg(target_os = "linux")]
            let free = match &turn {
                Some(turn) => free.saturating_sub(turn.others()?),
                None => free,
            };
            if requested <= free {
                #[cfg(target_os = "linux")]
                if let Some(turn) = &turn {
                    turn.set_own(bytes.taken + requested)?;
                }
                bytes.taken += requested;
                return Ok(());
            }
            #[cfg(target_os = "linux")]
            drop(turn);
            if !may_wait || bytes.dropped == 0 || requested > free.saturating_add(bytes.dropped) {
                return Err(BackendError::out_of_memory(requested, Some(free)));
            }
            self.freed.wait(&mut bytes);
        }
    }

    /// Waits until memory that was dropped is free. False if none was dropped.
    pub(crate) fn wait_for_dropped(&self) -> bool {
        let mut bytes = self.bytes.lock();
        let before = bytes.dropped;
        while bytes.dropped > 0 && bytes.dropped >= before {
            self.freed.wait(&mut bytes);
        }
        before > 0
    }

    /// Releases what nothing uses.
    pub(crate) fn untake(&self, bytes_taken: u64) {
        let mut bytes = self.bytes.lock();
        bytes.taken -= bytes_taken;
        self.publish_taken(&bytes);
        drop(bytes);
        self.freed.notify_all();
    }

    /// Counts bytes as dropped; queued work may still use them.
    pub(crate) fn drop_later(&self, bytes: u64) {
        self.bytes.lock().dropped += bytes;
    }

    /// Nothing uses what was [dropped](Self::drop_later) any more.
    pub(crate) fn release(&self, dropped: u64) {
        let mut bytes = self.bytes.lock();
        bytes.taken -= dropped;
        bytes.dropped -= dropped;
        self.publish_taken(&bytes);
        drop(bytes);
        self.freed.notify_all();
    }

    fn publish_taken(&self, bytes: &Bytes) {
        let _ = bytes;
        #[cfg(target_os = "linux")]
        if let Some(account) = self.account.get() {
            // A drop does not fail: others count what they read last, which is more.
            let _ = account.turn().and_then(|turn| turn.set_own(bytes.taken));
        }
    }
}
