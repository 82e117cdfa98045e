//! For measuring parts of the store by themselves. Not for use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::time::Duration;

use crate::scheduler::{Appender, QUEUE_SEGMENTS};
use crate::shared::Shared;
use crate::types::Options;

static WRITE_COST_US: AtomicU64 = AtomicU64::new(0);

/// Makes every write of the stores opened from now on take so much longer, asleep: as if it waited
/// for a disk.
///
/// In memory a write costs less than its scheduling, and few cores cannot show what the order of
/// writes costs. This can.
pub fn set_write_cost(cost: Duration) {
    WRITE_COST_US.store(cost.as_micros() as u64, Ordering::Relaxed);
}

pub(crate) fn write_cost() -> Option<Duration> {
    Some(Duration::from_micros(WRITE_COST_US.load(Ordering::Relaxed)))
        .filter(|cost| !cost.is_zero())
}

/// An appender whose segments are thrown away. The thread that does so ends with the appender.
pub fn scheduler_alone(options: Options) -> Appender {
    let shared = Arc::new(Shared::new(options, 1));
    let (queue, segments) = sync_channel(QUEUE_SEGMENTS);
    let (used_sender, used) = channel();
    let progress = shared.clone();
    std::thread::spawn(move || {
        for mut segment in segments {
            let segment: &mut Box<crate::log::Segment> = &mut segment;
            progress.visible.store(
                segment.first + segment.headers.len() as u64 - 1,
                Ordering::Release,
            );
            segment.clear();
            let _ = used_sender.send(std::mem::take(segment));
        }
    });
    Appender::new(shared, vec![queue], used)
}
