//! The reading side.

use std::ops::{Range, RangeInclusive};

use crate::*;

/// Which requests to read. The default is all of them, bodies included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFilter {
    pub ids: Option<RangeInclusive<RequestId>>,
    pub arrived: Option<Range<Micros>>,
    /// Leave `headers`, `body` and the response's headers and body empty: several times faster.
    pub lean: bool,
}

/// Which transactions to read. The default is all of them, kept bytes included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransactionFilter {
    pub ids: Option<RangeInclusive<TransactionId>>,
    /// Only transactions attributed to a request in this range.
    pub requests: Option<RangeInclusive<RequestId>>,
    pub began: Option<Range<Micros>>,
    /// Leave `server_bytes` and `client_bytes` empty, whether there were any or not.
    pub lean: bool,
}

/// An opened trace.
pub struct Trace;

pub type Requests = Box<dyn Iterator<Item = Result<Request, ReadError>> + Send>;
pub type Transactions = Box<dyn Iterator<Item = Result<Transaction, ReadError>> + Send>;

impl Trace {
    pub fn open(_location: &Location) -> Result<Trace, OpenError> {
        unreachable!("under construction")
    }
    /// Turns the write-ahead files of recorders that crashed into segments; returns how many.
    pub fn recover(_location: &Location) -> Result<usize, OpenError> {
        unreachable!("under construction")
    }
    /// Torn tails, crashes, recorders that cannot be seen from here.
    pub fn warnings(&self) -> &[String] {
        &[]
    }
    /// In order of their numbers.
    pub fn recorders(&self) -> &[Recorder] {
        &[]
    }
    /// In order of time.
    pub fn bases(&self) -> &[Base] {
        &[]
    }
    /// In order of `from`, crashes included.
    pub fn gaps(&self) -> &[Gap] {
        &[]
    }
    pub fn shapes(&self) -> &[Shape] {
        &[]
    }
    pub fn shape(&self, _id: ShapeId) -> Option<&Shape> {
        None
    }
    /// The last one.
    pub fn final_state(&self) -> Option<&FinalState> {
        None
    }
    pub fn request_count(&self) -> u64 {
        0
    }
    pub fn transaction_count(&self) -> u64 {
        0
    }
    /// In order of arrival.
    pub fn requests(&self, _filter: RequestFilter) -> Requests {
        Box::new(std::iter::empty())
    }
    /// In the order in which they began.
    pub fn transactions(&self, _filter: TransactionFilter) -> Transactions {
        Box::new(std::iter::empty())
    }
    pub fn request(&self, _id: RequestId) -> Result<Option<Request>, ReadError> {
        Ok(None)
    }
    pub fn transaction(&self, _id: TransactionId) -> Result<Option<Transaction>, ReadError> {
        Ok(None)
    }
}
