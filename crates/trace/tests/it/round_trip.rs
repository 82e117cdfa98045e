//! What was recorded is what is read, from segments and from write-ahead files alike.

use std::collections::BTreeMap;

use crate::common::*;
use hindcast_trace::*;
use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::TempDir;

#[derive(Clone, Debug)]
struct Records {
    requests: Vec<Request>,
    transactions: Vec<Transaction>,
    shapes: Vec<Shape>,
    gaps: Vec<Gap>,
    bases: Vec<Base>,
    recorders: Vec<Recorder>,
    final_states: Vec<FinalState>,
}

fn records() -> impl Strategy<Value = Records> {
    let large = (vec(any::request(), 0..20), vec(any::transaction(), 0..20));
    let small = (
        vec(any::shape(), 0..4),
        vec(any::gap(), 0..4),
        vec(any::base(), 0..3),
        vec(any::recorder(), 0..3),
        vec(any::final_state(), 0..3),
    );
    (large, small).prop_map(
        |((requests, transactions), (shapes, gaps, bases, recorders, final_states))| Records {
            requests,
            transactions,
            shapes,
            gaps,
            bases,
            recorders,
            final_states,
        },
    )
}

impl Records {
    fn write(&self, writer: &Writer) {
        self.recorders
            .iter()
            .for_each(|row| writer.record(Record::Recorder(row.clone())));
        self.bases
            .iter()
            .for_each(|row| writer.record(Record::Base(row.clone())));
        self.shapes
            .iter()
            .for_each(|row| writer.record(Record::Shape(row.clone())));
        self.requests
            .iter()
            .for_each(|row| writer.record(Record::Request(row.clone())));
        self.transactions
            .iter()
            .for_each(|row| writer.record(Record::Transaction(row.clone())));
        self.gaps
            .iter()
            .for_each(|row| writer.record(Record::Gap(row.clone())));
        self.final_states
            .iter()
            .for_each(|row| writer.record(Record::FinalState(row.clone())));
    }

    /// In the order in which a trace yields them. Records with the same id are one record.
    fn in_order(mut self) -> Self {
        let requests: BTreeMap<Id, Request> = self
            .requests
            .into_iter()
            .rev()
            .map(|row| (row.id, row))
            .collect();
        self.requests = requests.into_values().collect();
        let transactions: BTreeMap<Id, Transaction> = self
            .transactions
            .into_iter()
            .rev()
            .map(|row| (row.id, row))
            .collect();
        self.transactions = transactions.into_values().collect();
        self.recorders.sort_by_key(|row| row.number);
        self.bases.sort_by_key(|row| row.taken);
        self.shapes.sort_by_key(|row| row.id);
        self.shapes.dedup_by_key(|row| row.id);
        self.gaps.sort_by_key(|row| row.from);
        self.final_states.sort_by_key(|row| row.taken);
        self
    }

    fn check(&self, trace: &Trace) {
        assert_eq!(read_requests(trace), self.requests);
        assert_eq!(read_transactions(trace), self.transactions);
        assert_eq!(trace.shapes(), self.shapes);
        assert_eq!(trace.bases(), self.bases);
        assert_eq!(trace.recorders(), self.recorders);
        assert_eq!(trace.final_states(), self.final_states);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_time: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_kind_of_record_comes_back_from_a_segment(records in records()) {
        let folder = TempDir::new().unwrap();
        let location = Location::folder(folder.path());
        let (writer, _) = Writer::create(&location, quiet()).unwrap();
        records.write(&writer);
        writer.close().unwrap();
        let trace = Trace::open(&location).unwrap();
        let expected = records.in_order();
        expected.check(&trace);
        prop_assert_eq!(trace.gaps(), expected.gaps);
        prop_assert_eq!(trace.warnings(), Vec::<String>::new());
    }

    #[test]
    fn every_kind_of_record_comes_back_from_a_write_ahead_file(records in records()) {
        let folder = TempDir::new().unwrap();
        let location = Location::folder(folder.path());
        let (writer, _) = Writer::create(&location, quiet()).unwrap();
        records.write(&writer);
        flush(&writer);
        let trace = Trace::open(&location).unwrap();
        let expected = records.in_order();
        expected.check(&trace);
        prop_assert_eq!(trace.gaps(), expected.gaps);
        prop_assert_eq!(trace.recording(), [0]);
    }

    #[test]
    fn every_kind_of_record_survives_recovery(records in records()) {
        let folder = TempDir::new().unwrap();
        let location = Location::folder(folder.path());
        let (writer, _) = Writer::create(&location, quiet()).unwrap();
        records.write(&writer);
        drop(writer);
        prop_assert_eq!(Trace::recover(&location).unwrap(), 1);
        let trace = Trace::open(&location).unwrap();
        let mut expected = records.in_order();
        let crash = trace.gaps().iter().find(|gap| !expected.gaps.contains(gap)).unwrap().clone();
        prop_assert_eq!(&crash.cause, &GapCause::Crashed { recorder: 0 });
        expected.gaps.push(crash);
        expected.gaps.sort_by_key(|gap| gap.from);
        let expected = expected.in_order();
        expected.check(&trace);
        prop_assert_eq!(trace.gaps().len(), expected.gaps.len());
        prop_assert_eq!(Trace::recover(&location).unwrap(), 0);
    }

    #[test]
    fn a_lean_scan_differs_only_by_what_it_leaves_out(records in records(), from_file: bool) {
        let folder = TempDir::new().unwrap();
        let location = Location::folder(folder.path());
        let (writer, _) = Writer::create(&location, quiet()).unwrap();
        records.write(&writer);
        flush(&writer);
        if from_file {
            writer.close().unwrap();
        }
        let trace = Trace::open(&location).unwrap();
        let mut expected = records.in_order();
        for request in &mut expected.requests {
            request.headers.clear();
            request.body.clear();
            request.calls.clear();
            request.secrets = Secrets::None;
            if let Response::Answered { headers, body, .. } = &mut request.response {
                headers.clear();
                *body = None;
            }
        }
        for transaction in &mut expected.transactions {
            transaction.server_bytes = None;
            transaction.client_bytes = None;
            transaction.statement_snapshots = Vec::new();
            transaction.clock.clear();
            transaction.row_order.clear();
            transaction.secrets = Secrets::None;
        }
        let requests = trace.requests(RequestFilter { lean: true, ..RequestFilter::default() });
        prop_assert_eq!(requests.collect::<Result<Vec<_>, _>>().unwrap(), expected.requests);
        let index: Vec<IndexEntry> = trace.index(TransactionFilter::default()).collect::<Result<_, _>>().unwrap();
        let transactions: Vec<Transaction> = index.into_iter().map(|entry| entry.transaction).collect();
        prop_assert_eq!(transactions, expected.transactions);
    }
}

/// JSON has no number that is so large.
#[test]
fn uuids_are_text_for_people() {
    let drawn = Drawn {
        statement: None,
        value: DrawnValue::Uuid(u128::MAX),
    };
    let json = serde_json::to_value(drawn).unwrap();
    let text = "ffffffff-ffff-ffff-ffff-ffffffffffff";
    assert_eq!(json["value"]["Uuid"], text, "{json}");
    assert_eq!(serde_json::from_value::<Drawn>(json).unwrap(), drawn);
    let shown = DrawnUuid {
        place: DrawnAt::Call,
        value: 7,
    };
    let json = serde_json::to_value(shown).unwrap();
    assert_eq!(json["value"], "00000000-0000-0000-0000-000000000007");
    assert_eq!(serde_json::from_value::<DrawnUuid>(json).unwrap(), shown);
}
