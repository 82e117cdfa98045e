//! What requests read from the wall clock behind their answers, until a transaction ends that they
//! work on then. It is kept with that: the request itself is told of when it is answered.

use std::collections::BTreeMap;

use hindcast_taplog::pins::{Reading, encode_readings};
use hindcast_trace::Transaction;

/// By request, since the transaction before.
#[derive(Debug, Default)]
pub(super) struct Late {
    of: BTreeMap<u64, Vec<Reading>>,
}

impl Late {
    /// Requests that read something and come to no transaction; of more, the oldest goes.
    const REQUESTS_MAX: usize = 1 << 13;

    pub fn told(&mut self, request: u64, reading: Reading) {
        self.of.entry(request).or_default().push(reading);
        if self.of.len() > Self::REQUESTS_MAX {
            self.of.pop_first();
        }
    }

    /// The transaction has ended, and keeps what its request has read.
    pub fn keep_with(&mut self, transaction: &mut Transaction) {
        if let Some((request, _)) = transaction.request
            && let Some(readings) = self.of.remove(&request.0)
        {
            let began = transaction.began.saturating_mul(1000);
            transaction.clock = encode_readings(began, &readings);
        }
    }
}
