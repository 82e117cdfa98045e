//! Streams over all segments of all recorders.
//!
//! ```text
//! segments of recorder 0 ──by id──▶ RecorderStream ─┐
//! segments of recorder 1 ──by id──▶ RecorderStream ─┴─by time──▶ TraceStream
//! ```
//!
//! A request that took long is in a later segment than its neighbours, so segments of one recorder
//! overlap and are merged. One is opened when the merge reaches its lowest id, and closed at its
//! end: few are open at the same time.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as Memory};

use crate::parquet_table::{Selection, Table, TableReader, TableSummary};
use crate::segment::{is_pruned, segment_name, table_name};
use crate::store::{Chunks, Store};
use crate::tables::{Requests, Transactions};
use crate::wal::{Wal, WalIndex};
use crate::{ReadError, Request, Response, Secrets, Transaction};

pub(super) struct Segment {
    pub recorder: u16,
    pub number: u32,
    pub source: Source,
    pub requests: TableSummary,
    pub transactions: TableSummary,
    /// Whether the files' checksums were found right since the trace was opened: once is enough.
    pub requests_checked: AtomicBool,
    pub transactions_checked: AtomicBool,
}

pub(super) enum Source {
    Files,
    Wal(Box<Wal>),
}

/// The two tables that are streamed.
pub(super) trait Streamed: Table {
    fn summary(segment: &Segment) -> &TableSummary;
    fn checked(segment: &Segment) -> &AtomicBool;
    fn places(index: WalIndex) -> Vec<(u64, u64)>;
    /// Leaves out what a lean scan of a file leaves unread.
    fn without_bulk(row: Self::Row) -> Self::Row;
}

impl Streamed for Requests {
    fn summary(segment: &Segment) -> &TableSummary {
        &segment.requests
    }
    fn checked(segment: &Segment) -> &AtomicBool {
        &segment.requests_checked
    }
    fn places(index: WalIndex) -> Vec<(u64, u64)> {
        index.requests
    }
    fn without_bulk(mut row: Request) -> Request {
        row.headers = Vec::new();
        row.body = Vec::new();
        row.calls = Vec::new();
        row.secrets = Secrets::None;
        if let Response::Answered { headers, body, .. } = &mut row.response {
            *headers = Vec::new();
            *body = None;
        }
        row
    }
}

impl Streamed for Transactions {
    fn summary(segment: &Segment) -> &TableSummary {
        &segment.transactions
    }
    fn checked(segment: &Segment) -> &AtomicBool {
        &segment.transactions_checked
    }
    fn places(index: WalIndex) -> Vec<(u64, u64)> {
        index.transactions
    }
    fn without_bulk(row: Transaction) -> Transaction {
        Transaction {
            server_bytes: None,
            client_bytes: None,
            statement_snapshots: Vec::new(),
            clock: Vec::new(),
            row_order: Vec::new(),
            secrets: Secrets::None,
            ..row
        }
    }
}

/// Rows of all recorders in order of their times. After an error there is nothing more.
pub(super) struct TraceStream<T: Streamed> {
    streams: Vec<(RecorderStream<T>, Option<T::Row>)>,
    started: bool,
}

impl<T: Streamed> TraceStream<T> {
    pub fn new(store: &Store, segments: &[Arc<Segment>], selection: Selection) -> Self {
        let mut by_recorder: BTreeMap<u16, Vec<Arc<Segment>>> = BTreeMap::new();
        for segment in segments {
            let TableSummary {
                rows,
                first_id,
                last_id,
                first_time,
                last_time,
                ..
            } = *T::summary(segment);
            if rows > 0 && selection.may_take(first_id..=last_id, first_time..=last_time) {
                by_recorder
                    .entry(segment.recorder)
                    .or_default()
                    .push(Arc::clone(segment));
            }
        }
        let streams = by_recorder.into_values().map(|mut unopened| {
            // Taken from the end.
            unopened.sort_by_key(|segment| Reverse(T::summary(segment).first_id));
            let stream = RecorderStream {
                store: store.clone(),
                selection: selection.clone(),
                unopened,
                open: BinaryHeap::new(),
                last: None,
            };
            (stream, None)
        });
        Self {
            streams: streams.collect(),
            started: false,
        }
    }

    pub fn next_row(&mut self) -> Result<Option<T::Row>, ReadError> {
        let row = self.advance();
        if row.is_err() {
            self.streams.clear();
        }
        row
    }

    fn advance(&mut self) -> Result<Option<T::Row>, ReadError> {
        if !self.started {
            for (stream, head) in &mut self.streams {
                *head = stream.next_row()?;
            }
            self.started = true;
        }
        // Recorders are few; a heap would only hide the rule.
        let earliest = self
            .streams
            .iter_mut()
            .filter(|(_, head)| head.is_some())
            .min_by_key(|(_, head)| head.as_ref().map(|row| (T::time(row), T::id(row))));
        let Some((stream, head)) = earliest else {
            return Ok(None);
        };
        let next = stream.next_row()?;
        Ok(std::mem::replace(head, next))
    }
}

/// Rows of one recorder in order of their ids.
struct RecorderStream<T: Streamed> {
    store: Store,
    selection: Selection,
    /// The one with the lowest id last.
    unopened: Vec<Arc<Segment>>,
    open: BinaryHeap<Reverse<OpenSegment<T>>>,
    last: Option<u64>,
}

impl<T: Streamed> RecorderStream<T> {
    fn next_row(&mut self) -> Result<Option<T::Row>, ReadError> {
        loop {
            while let Some(segment) = self.unopened.last() {
                let reached = self
                    .open
                    .peek()
                    .is_none_or(|Reverse(open)| T::summary(segment).first_id <= open.head_id());
                if !reached {
                    break;
                }
                let segment = self.unopened.pop().expect("there is a last one");
                let mut rows = Rows::open(&self.store, segment, &self.selection)?;
                if let Some(head) = rows.next_row()? {
                    self.open.push(Reverse(OpenSegment { head, rows }));
                }
            }
            let Some(Reverse(OpenSegment { head, mut rows })) = self.open.pop() else {
                return Ok(None);
            };
            if let Some(head) = rows.next_row()? {
                self.open.push(Reverse(OpenSegment { head, rows }));
            }
            // The same record twice, if a write that was reported as failed had reached the disk
            // after all.
            if self.last != Some(T::id(&head)) {
                self.last = Some(T::id(&head));
                return Ok(Some(head));
            }
        }
    }
}

struct OpenSegment<T: Streamed> {
    head: T::Row,
    rows: Rows<T>,
}

impl<T: Streamed> OpenSegment<T> {
    fn head_id(&self) -> u64 {
        T::id(&self.head)
    }
}

impl<T: Streamed> PartialEq for OpenSegment<T> {
    fn eq(&self, other: &Self) -> bool {
        self.head_id() == other.head_id()
    }
}

impl<T: Streamed> Eq for OpenSegment<T> {}

impl<T: Streamed> PartialOrd for OpenSegment<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Streamed> Ord for OpenSegment<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.head_id().cmp(&other.head_id())
    }
}

/// The wanted rows of one segment in order of their ids.
enum Rows<T: Streamed> {
    File(Box<TableReader<T>>),
    Wal {
        segment: Arc<Segment>,
        places: std::vec::IntoIter<(u64, u64)>,
        selection: Selection,
    },
}

fn open_table<T: Table>(store: &Store, segment: &Segment) -> Result<Chunks, ReadError> {
    let name = table_name::<T>(&segment_name(segment.recorder, segment.number));
    store.open(&name).map_err(
        |error| match is_pruned(store, segment.recorder, segment.number) {
            Ok(true) => ReadError::Pruned {
                what: store.shown(&name),
            },
            _ => error.into(),
        },
    )
}

impl<T: Streamed> Rows<T> {
    fn open(
        store: &Store,
        segment: Arc<Segment>,
        selection: &Selection,
    ) -> Result<Self, ReadError> {
        match &segment.source {
            Source::Files => {
                let chunks = open_table::<T>(store, &segment)?;
                if !T::checked(&segment).load(Memory::Relaxed) {
                    let TableSummary { bytes, xxh3, .. } = T::summary(&segment);
                    chunks.check(*bytes, xxh3)?;
                    T::checked(&segment).store(true, Memory::Relaxed);
                }
                Ok(Self::File(Box::new(TableReader::open(
                    chunks,
                    selection.clone(),
                )?)))
            }
            Source::Wal(wal) => {
                let mut places = T::places(wal.index()?);
                if let Some(ids) = &selection.ids {
                    places.retain(|(id, _)| ids.contains(id));
                }
                let places = places.into_iter();
                Ok(Self::Wal {
                    segment: Arc::clone(&segment),
                    places,
                    selection: selection.clone(),
                })
            }
        }
    }

    fn next_row(&mut self) -> Result<Option<T::Row>, ReadError> {
        match self {
            Self::File(table) => table.next_row(),
            Self::Wal {
                segment,
                places,
                selection,
            } => {
                let Source::Wal(wal) = &segment.source else {
                    unreachable!("opened as a write-ahead file")
                };
                for (_, at) in places {
                    let row = T::pick(wal.record_at(at)?).expect("the index knows what is where");
                    if selection.takes(T::id(&row), T::time(&row), T::request(&row)) {
                        return Ok(Some(if selection.lean {
                            T::without_bulk(row)
                        } else {
                            row
                        }));
                    }
                }
                Ok(None)
            }
        }
    }
}
