//! The answer to: what happened between these two moments, on a screen this wide?
//!
//! Few requests are answered one by one, as marks with their transactions. Many are answered as
//! columns: how many arrived in a lane in a stretch of time. Which it is, the server decides by
//! what the screen would have to draw.

use hindcast_trace::{Id, Micros};
use serde::Serialize;

use crate::index::{ABORTED, COMMITTED, Index, LOCKS, RECHECKED, WROTE};
use crate::levels::Levels;

/// An answer has no more requests than this one by one.
pub const MARKS_MAX: usize = 4000;
/// No more columns than this in each lane, whatever was asked.
pub const COLUMNS_MAX: u32 = 4096;
/// No more lanes than this.
const ROWS_MAX: usize = 256;
/// Ghosts of one answer.
const GHOSTS_MAX: usize = 2000;

/// Which part of the timeline is on the screen.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    pub from: Micros,
    pub until: Micros,
    /// Columns that the screen has.
    pub columns: u32,
    /// The first lane on the screen, and how many.
    pub lane: usize,
    pub rows: usize,
}

#[derive(Debug, PartialEq, Serialize)]
pub struct Timeline {
    pub from: Micros,
    pub until: Micros,
    /// In all, on the screen or not.
    pub lanes_total: usize,
    pub lane: usize,
    pub lanes: Vec<LaneLine>,
    /// Requests that the filter takes and that lie in the range, in all lanes.
    pub requests: u64,
    #[serde(flatten)]
    pub drawn: Drawn,
    pub ghosts: Vec<GhostMark>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct LaneLine {
    pub lane: usize,
    pub name: String,
    /// In the whole recording, as far as the filter takes them.
    pub requests: u64,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "drawn", rename_all = "snake_case")]
pub enum Drawn {
    Marks {
        marks: Vec<Mark>,
    },
    Columns {
        /// When the first column begins, and how long each is.
        begins: Micros,
        column_us: Micros,
        columns: Vec<LaneColumns>,
    },
}

/// One request. Times are relative to the answer's `from`, which keeps the text short.
#[derive(Debug, PartialEq, Serialize)]
pub struct Mark {
    pub id: String,
    pub lane: usize,
    pub at: Micros,
    pub took: u32,
    pub status: u16,
    /// Position among the types.
    pub kind: u16,
    pub transactions: Vec<TransactionMark>,
}

#[derive(Debug, PartialEq, Serialize)]
pub struct TransactionMark {
    pub id: String,
    pub at: Micros,
    pub lasted: u32,
    pub wrote: bool,
    pub aborted: bool,
    pub committed: bool,
    /// It took locks, or had to wait for another.
    pub locks: bool,
    pub waited: bool,
}

#[derive(Debug, PartialEq, Serialize)]
pub struct GhostMark {
    #[serde(flatten)]
    pub transaction: TransactionMark,
    pub session: String,
}

/// Parallel lists, one element for each column in which something arrived.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct LaneColumns {
    pub lane: usize,
    pub x: Vec<u64>,
    pub requests: Vec<u32>,
    pub failed: Vec<u32>,
    pub longest: Vec<u32>,
}

/// How many requests there are in each part of the whole.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Overview {
    pub begins: Micros,
    pub column_us: Micros,
    pub x: Vec<u64>,
    pub requests: Vec<u64>,
    pub failed: Vec<u64>,
}

pub fn timeline(index: &Index, levels: &Levels, question: &Question) -> Timeline {
    let (from, until) = (question.from, question.until.max(question.from + 1));
    let lanes_total = levels.by_lane.len();
    let first = question.lane.min(lanes_total);
    let rows = question.rows.min(ROWS_MAX).min(lanes_total - first);
    let on_screen = first..first + rows;
    let (requests, drawn) = match marks(index, levels, from, until, &on_screen) {
        Some(found) => found,
        None => columns(index, levels, question, until, &on_screen),
    };
    let lanes = on_screen.clone().map(|lane| LaneLine {
        lane,
        name: levels.lanes.name(index, lane),
        requests: levels.by_lane[lane],
    });
    Timeline {
        from,
        until,
        lanes_total,
        lane: first,
        lanes: lanes.collect(),
        requests,
        drawn,
        ghosts: ghosts(index, from, until),
    }
}

/// Requests one by one, unless there are too many.
fn marks(
    index: &Index,
    levels: &Levels,
    from: Micros,
    until: Micros,
    on_screen: &std::ops::Range<usize>,
) -> Option<(u64, Drawn)> {
    // In so many rows the few that are wanted may hide; counting columns is quicker by then.
    let scanned_max = MARKS_MAX * 16;
    let (mut requests, mut marks) = (0, Vec::new());
    for (scanned, at) in index.within(from, until).enumerate() {
        if scanned == scanned_max {
            return None;
        }
        if !levels.takes(at) {
            continue;
        }
        requests += 1;
        let lane = levels.lanes.of(index, at);
        if on_screen.contains(&lane) {
            if marks.len() == MARKS_MAX {
                return None;
            }
            marks.push(mark(index, at, lane, from));
        }
    }
    Some((requests, Drawn::Marks { marks }))
}

fn mark(index: &Index, at: usize, lane: usize, from: Micros) -> Mark {
    let own = index.transactions_of(at);
    Mark {
        id: Id(index.id[at]).to_string(),
        lane,
        at: index.arrived[at] - from,
        took: index.took[at],
        status: index.status[at],
        kind: index.kind[at],
        // Of requests with thousands of transactions the first tell enough.
        transactions: own
            .take(256)
            .map(|own| transaction_mark(index, own, from))
            .collect(),
    }
}

fn transaction_mark(index: &Index, at: usize, from: Micros) -> TransactionMark {
    let has = |flag: u8| index.flags[at] & flag != 0;
    TransactionMark {
        id: Id(index.transaction[at]).to_string(),
        at: index.began[at] - from,
        lasted: index.lasted[at],
        wrote: has(WROTE),
        aborted: has(ABORTED),
        committed: has(COMMITTED),
        locks: has(LOCKS),
        waited: has(RECHECKED),
    }
}

fn columns(
    index: &Index,
    levels: &Levels,
    question: &Question,
    until: Micros,
    on_screen: &std::ops::Range<usize>,
) -> (u64, Drawn) {
    let wanted = i64::from(question.columns.clamp(1, COLUMNS_MAX));
    let least = (until - question.from) / wanted;
    let (begins, column_us, counts) = levels.columns(index, question.from, until, least.max(1));
    let mut by_lane: Vec<LaneColumns> = on_screen
        .clone()
        .map(|lane| LaneColumns {
            lane,
            ..LaneColumns::default()
        })
        .collect();
    let mut requests = 0;
    for count in counts {
        requests += u64::from(count.requests);
        let lane = usize::from(count.lane);
        if on_screen.contains(&lane) {
            let own = &mut by_lane[lane - on_screen.start];
            own.x.push(count.stretch);
            own.requests.push(count.requests);
            own.failed.push(count.failed);
            own.longest.push(count.longest);
        }
    }
    by_lane.retain(|own| !own.x.is_empty());
    let drawn = Drawn::Columns {
        begins,
        column_us,
        columns: by_lane,
    };
    (requests, drawn)
}

fn ghosts(index: &Index, from: Micros, until: Micros) -> Vec<GhostMark> {
    let ghosts = index.ghosts();
    let began = &index.began[ghosts.clone()];
    let first = began.partition_point(|at| *at < from);
    let end = began.partition_point(|at| *at < until).max(first);
    if end - first > GHOSTS_MAX {
        return Vec::new();
    }
    let own = (ghosts.start + first..ghosts.start + end).map(|at| GhostMark {
        transaction: transaction_mark(index, at, from),
        session: Id(index.sessions[index.session[at] as usize]).to_string(),
    });
    own.collect()
}

/// The whole recording in about so many columns, all lanes together.
pub fn overview(index: &Index, levels: &Levels, columns: u32) -> Overview {
    let (from, until) = index.span().unwrap_or((0, 1));
    let least = (until - from) / i64::from(columns.clamp(1, COLUMNS_MAX));
    let (begins, column_us, counts) = levels.columns(index, from, until, least.max(1));
    let mut overview = Overview {
        begins,
        column_us,
        x: Vec::new(),
        requests: Vec::new(),
        failed: Vec::new(),
    };
    for count in counts {
        if overview.x.last() != Some(&count.stretch) {
            overview.x.push(count.stretch);
            overview.requests.push(0);
            overview.failed.push(0);
        }
        let at = overview.x.len() - 1;
        overview.requests[at] += u64::from(count.requests);
        overview.failed[at] += u64::from(count.failed);
    }
    overview
}

/// The first requests of a range that the filter takes, by arrival.
pub fn listed(
    index: &Index,
    levels: &Levels,
    from: Micros,
    until: Micros,
    most: usize,
) -> Vec<usize> {
    let start = index.arrived.partition_point(|at| *at < from);
    let end = index.arrived.partition_point(|at| *at < until).max(start);
    let taken = (start..end).filter(|at| levels.takes(*at));
    taken.take(most.min(MARKS_MAX)).collect()
}
