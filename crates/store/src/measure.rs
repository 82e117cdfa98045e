//! For measuring parts of the store by themselves. Not for use.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{channel, sync_channel};

use crate::scheduler::{Appender, QUEUE_SEGMENTS};
use crate::shared::Shared;
use crate::types::Options;

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
