//! Tags, sleep and wake.

use crate::boundary::{Out, Text, Texts, exports, guard};
use crate::failure::Status;
use crate::scopes::ThreadScope;
use crate::sleep::{CopyCallback, SleepReport, progress_to};
use crate::{registry, scopes};
use std::ffi::{c_int, c_void};
use vrampool_sleep::Offload;

exports! {
    fn vrampool_tag_create(pool: u64, tag: Text<'_>) {
        let tag = tag.required("tag")?;
        registry::get(pool)?.tagged_or_new(tag).map(drop)
    }

    fn vrampool_tag_begin(pool: u64, tag: Text<'_>) {
        let tag = tag.required("tag")?;
        scopes::begin(pool, &registry::get(pool)?.tagged_or_new(tag)?);
        Ok(())
    }

    fn vrampool_tag_end(pool: u64) {
        scopes::end(pool)
    }

    fn vrampool_sleep(
        pool: u64,
        keep: Texts<'_>,
        count: usize,
        on_progress: Option<CopyCallback>,
        user: *mut c_void,
        report: Out<'_, SleepReport>,
    ) {
        let (keep, pool) = (keep.texts(count, "keep")?, registry::get(pool)?);
        let kept = pool.options.offload;
        report.answer_if_wanted("report", || {
            let policy = |tag: &str| Some(if keep.contains(&tag) { kept } else { Offload::Discard });
            pool.fall_asleep(&keep, policy, &progress_to(on_progress, user))
        })
    }

    fn vrampool_sleep_tags(
        pool: u64,
        tags: Texts<'_>,
        count: usize,
        keep_contents: c_int,
        on_progress: Option<CopyCallback>,
        user: *mut c_void,
        report: Out<'_, SleepReport>,
    ) {
        let (tags, pool) = (tags.texts(count, "tags")?, registry::get(pool)?);
        let offload = if keep_contents == 0 { Offload::Discard } else { pool.options.offload };
        report.answer_if_wanted("report", || {
            let policy = |tag: &str| tags.contains(&tag).then_some(offload);
            pool.fall_asleep(&tags, policy, &progress_to(on_progress, user))
        })
    }

    fn vrampool_wake(
        pool: u64,
        tags: Texts<'_>,
        count: usize,
        on_progress: Option<CopyCallback>,
        user: *mut c_void,
        report: Out<'_, SleepReport>,
    ) {
        let pool = registry::get(pool)?;
        let tags = if tags.is_null() { None } else { Some(tags.texts(count, "tags")?) };
        report.answer_if_wanted("report", || pool.wake(tags.as_deref(), &progress_to(on_progress, user)))
    }

    fn vrampool_is_asleep(pool: u64, tag: Text<'_>, is_asleep: Out<'_, c_int>) {
        is_asleep.answer("is_asleep", || {
            let (pool, tag) = (registry::get(pool)?, tag.required("tag")?);
            pool.check_tags(&[tag])?;
            Ok(c_int::from(pool.tagged(tag).is_some_and(|tagged| tagged.is_asleep())))
        })
    }
}

/// As [`vrampool_tag_begin`], for callers in Rust: the scope ends with the value.
///
/// # Errors
/// The status, whose text is that of the thread's last error.
pub fn begin_scope(pool: u64, tag: Text<'_>) -> Result<ThreadScope, Status> {
    let mut begun = None;
    let status = guard(|| {
        let tagged = registry::get(pool)?.tagged_or_new(tag.required("tag")?)?;
        begun = Some(ThreadScope::begin(pool, &tagged));
        Ok(())
    });
    begun.ok_or(status)
}
