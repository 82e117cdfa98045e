//! A witness that keeps what it is told.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use hindcast_gateway::http::{Arrival, Durable, Witness};
use hindcast_model::Traceparent;
use hindcast_trace::{Id, Micros, Request};
use tokio::sync::watch;

use crate::common::*;

/// Collects what it is told.
pub struct Collecting {
    next: AtomicU64,
    pub requests: Mutex<Vec<Request>>,
    /// Why requests may be missing.
    pub missed: Mutex<Vec<String>>,
    pub in_flight: watch::Sender<usize>,
    /// Who can wait is to.
    pub full: AtomicBool,
    /// `None`: responses need not wait.
    disk: Option<watch::Receiver<bool>>,
    /// It is always the same time, if this is not set.
    timed: bool,
}

impl Collecting {
    pub fn new(disk: Option<watch::Receiver<bool>>) -> Arc<Self> {
        Arc::new(Self {
            next: AtomicU64::new(1),
            requests: Mutex::default(),
            missed: Mutex::default(),
            in_flight: watch::Sender::new(0),
            full: AtomicBool::new(false),
            disk,
            timed: false,
        })
    }

    pub fn timed() -> Arc<Self> {
        let collecting = Self {
            timed: true,
            ..Arc::into_inner(Self::new(None)).expect("it is new")
        };
        Arc::new(collecting)
    }

    /// All requests, once there are any and none is in flight any more.
    pub async fn all(&self) -> Vec<Request> {
        until("all requests ended", async || {
            *self.in_flight.borrow() == 0 && !self.requests.lock().unwrap().is_empty()
        })
        .await;
        assert!(self.missed.lock().unwrap().is_empty());
        self.requests.lock().unwrap().clone()
    }

    pub async fn only(&self) -> Request {
        let requests = self.all().await;
        assert_eq!(requests.len(), 1, "{requests:#?}");
        requests.into_iter().next().unwrap()
    }
}

impl Witness for Collecting {
    fn arrived(&self) -> Option<Arrival> {
        self.arrived_before(self.next.fetch_add(1, Ordering::SeqCst), self.now())
    }

    fn arrived_before(&self, number: u64, at: Micros) -> Option<Arrival> {
        let id = Id(number);
        self.in_flight.send_modify(|count| *count += 1);
        Some(Arrival {
            id,
            at,
            traceparent: Traceparent {
                prefix: 0xabc,
                request: id,
                span: 7,
            },
        })
    }

    fn ended(&self, request: Request) {
        self.requests.lock().unwrap().push(request);
        self.in_flight.send_modify(|count| *count -= 1);
    }

    fn has_room(&self) -> bool {
        !self.full.load(Ordering::SeqCst)
    }

    fn missed(&self, _: Micros, _: Micros, reason: &str) {
        self.missed.lock().unwrap().push(reason.to_owned());
    }

    fn durable(&self) -> Option<Durable> {
        let mut disk = self.disk.clone()?;
        Some(Box::pin(async move {
            let _ = disk.wait_for(|written| *written).await;
        }))
    }

    fn now(&self) -> Micros {
        match (self.timed, SystemTime::now().duration_since(UNIX_EPOCH)) {
            (true, Ok(since)) => since.as_micros() as Micros,
            _ => 1,
        }
    }
}
