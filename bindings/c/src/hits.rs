//! Requests that a thread serves from idle memory, by C's numbers for pool and stream: no table of pools, no count and,
//! from its own idle blocks, no lock.

use crate::streams::Named;
use vrampool::Pool;
use vrampool::any::AnyDevice;
use vrampool::internal::{self, Numbers};

/// From now on this thread serves requests like this one from its idle blocks of `pool`.
pub(crate) fn remember(handle: u64, Named { raw, id, epoch }: Named, bytes: u64, pool: &Pool<AnyDevice>) {
    internal::know(Numbers { pool: handle, stream: raw as u64, epoch }, bytes, pool, id);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{Failure, Status};
    use crate::options::Options;
    use crate::pool::CPool;
    use crate::{registry, scopes, streams};
    use vrampool_sleep::DEFAULT_TAG;

    fn pool(source: &str) -> u64 {
        let options = format!("device=host; host_capacity=16MiB; source={source}");
        let options = Options::parse(&options).expect("good");
        registry::add(|handle| CPool::new(handle, options)).expect("a pool")
    }

    const SMALL: u64 = 100;
    const LARGE: u64 = 2 << 20;

    fn is_hit(handle: u64, size: u64) -> bool {
        let of = Numbers { pool: handle, stream: 0, epoch: streams::epoch() };
        internal::take_known(of, size).or_else(|| internal::take_known_large::<AnyDevice>(of, size)).is_some()
    }

    fn free(handle: u64, address: u64) {
        assert_eq!(crate::vrampool_free(handle, address as *mut _, std::ptr::null_mut()), Status::OK);
    }

    /// Allocates and frees. Returns whether the next request is a hit.
    fn remembers(handle: u64, bytes: u64) -> bool {
        // Another test of the process may let a stream go at any time, and then this is tried again.
        loop {
            let before = streams::epoch();
            free(handle, registry::with(handle, |pool| pool.allocate(bytes, 0)).expect("memory"));
            let was_hit = is_hit(handle, bytes);
            if streams::epoch() == before {
                break was_hit;
            }
        }
    }

    #[test]
    fn what_a_thread_remembers_ends_with_a_recording_and_with_the_pool() {
        let handle = pool("direct");
        for bytes in [SMALL, LARGE] {
            assert!(!is_hit(handle, bytes), "nothing was freed yet");
            assert!(remembers(handle, bytes));
            registry::with(handle, |pool| pool.recording.start(100)).expect("begun");
            assert!(!is_hit(handle, bytes) && !remembers(handle, bytes), "each request is recorded");
            registry::with(handle, |pool| pool.recording.stop(|_| Ok::<_, Failure>(()))).expect("ended");
            assert!(remembers(handle, bytes));
        }
        registry::remove(handle).expect("it is there");
        assert!(!is_hit(handle, SMALL) && !is_hit(handle, LARGE));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn no_request_in_a_scope_is_a_hit_of_the_default_tag() {
        let handle = pool("virtual");
        for bytes in [SMALL, LARGE] {
            // The first request maps memory, and what is idle is recalled.
            assert!(remembers(handle, bytes) || remembers(handle, bytes));
            let other = registry::with(handle, |pool| pool.tagged_or_new("other")).expect("a tag");
            scopes::begin(handle, &other);
            assert!(!is_hit(handle, bytes), "it is the other tag's");
            let by_name = registry::with(handle, |pool| pool.allocate_tagged(DEFAULT_TAG, bytes, 0));
            free(handle, by_name.expect("memory"));
            assert!(!is_hit(handle, bytes) && !remembers(handle, bytes), "the scope is still open");
            scopes::end(handle).expect("it was begun");
            assert!(remembers(handle, bytes));
        }
        registry::remove(handle).expect("it is there");
    }
}
