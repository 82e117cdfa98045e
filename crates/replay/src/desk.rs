//! Sessions at the gate: the holding gateway's driver, and what it knows.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;
use hindcast_gateway::pg::{Driver, Flow, Host, Refusal, SessionStart, Wires};
use hindcast_order::Tx;
use hindcast_trace::{Id, RequestId, ShapeId};

use crate::coordinator::{Ask, Claim, Ended};
use crate::gate::Gate;
use crate::hold::{Desk, HoldOptions, Holder, Next, Pins};
use crate::recording::Recording;

/// What all sessions of a replay share.
pub struct Floor {
    pub gate: Gate,
    pub recording: Arc<Recording>,
    /// Shapes that only read; see [`Pins::reads_only`].
    pub reading: HashSet<ShapeId>,
    /// The request in flight if there is exactly one, else 0.
    pub alone: AtomicU64,
    /// Writes outside any request that were refused, by statement.
    pub refused: Mutex<BTreeMap<String, u64>>,
}

impl Floor {
    pub fn new(gate: Gate, recording: Arc<Recording>, reading: HashSet<ShapeId>) -> Self {
        Self {
            gate,
            recording,
            reading,
            alone: AtomicU64::new(0),
            refused: Mutex::default(),
        }
    }

    pub fn pins(&self, tx: Tx) -> Pins {
        let recorded = self.recording.transaction(tx);
        if !recorded.wrote && self.reading.contains(&recorded.shape) {
            return Pins {
                isolation: Some(recorded.isolation),
                reads_only: true,
                ..Pins::default()
            };
        }
        // A temporary file that cannot be read back would show as a difference in the sequence values.
        let extras = self.recording.extras(tx).unwrap_or_default();
        Pins {
            isolation: Some(recorded.isolation),
            now: recorded.now,
            sequence_values: extras.sequence_values,
            reads_only: false,
        }
    }

    pub fn permission(&self, ask: Ask) -> Flow {
        if self.gate.permits(ask) {
            // The host calls back at once.
            return Flow::Wait(Box::pin(std::future::ready(())));
        }
        Flow::Wait(Box::pin(self.gate.permission(ask)))
    }
}

/// A session of the service.
pub struct ServiceDesk(pub Arc<Floor>);

impl Desk for ServiceDesk {
    fn claim(&mut self, request: Option<RequestId>, opening: u64) -> Claim {
        self.0
            .gate
            .with(|coordinator| coordinator.claim(request, opening))
    }
    fn pins(&self, tx: Tx) -> Pins {
        self.0.pins(tx)
    }
    fn recorded_answers(&self, tx: Tx) -> Option<Vec<u8>> {
        self.0.recording.extras(tx).ok()?.server_bytes
    }
    fn alone(&self) -> Option<RequestId> {
        Some(self.0.alone.load(Ordering::Acquire))
            .filter(|&id| id != 0)
            .map(Id)
    }
    fn took_snapshot(&mut self, tx: Tx) {
        self.0
            .gate
            .with(|coordinator| coordinator.took_snapshot(tx));
    }
    fn locked(&mut self, tx: Tx, statement: u32) {
        self.0
            .gate
            .with(|coordinator| coordinator.locked(tx, statement));
    }
    fn ran(&mut self, tx: Tx) {
        self.0.gate.with(|coordinator| coordinator.ran(tx));
    }
    fn ended(&mut self, tx: Tx, ended: Ended) {
        self.0
            .gate
            .with(|coordinator| coordinator.ended(tx, &ended));
    }
    fn served(&mut self, tx: Tx, complete: bool) {
        self.0
            .gate
            .with(|coordinator| coordinator.served(tx, complete));
    }
    fn lost(&mut self, tx: Tx) {
        self.0.gate.with(|coordinator| coordinator.lost(tx));
    }
    fn outside_write_refused(&mut self, statement: &str) {
        let mut refused = self
            .0
            .refused
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *refused.entry(statement.to_owned()).or_default() += 1;
    }
}

/// Gives every session of the service a [`Holder`].
pub struct HoldingHost {
    pub floor: Arc<Floor>,
    pub options: HoldOptions,
    /// The rewound database, whatever the service asks for.
    pub database: String,
    pub allow_outside_writes: bool,
    pub raise_isolation: bool,
}

pub struct HoldingDriver {
    holder: Holder,
    desk: ServiceDesk,
}

impl Host for HoldingHost {
    type Driver = HoldingDriver;

    fn open(&self, start: &mut SessionStart) -> Result<HoldingDriver, Refusal> {
        let parameters = &mut start.parameters;
        parameters.set("database", &self.database);
        // Nothing of a replay needs to survive a crash (R³ §3.5).
        parameters.set("synchronous_commit", "off");
        if !self.allow_outside_writes {
            parameters.set("default_transaction_read_only", "on");
        }
        if self.raise_isolation && !parameters.chooses("default_transaction_isolation") {
            parameters.set("default_transaction_isolation", "repeatable read");
        }
        Ok(HoldingDriver {
            holder: Holder::new(self.options.clone()),
            desk: ServiceDesk(Arc::clone(&self.floor)),
        })
    }
}

impl HoldingDriver {
    fn flow(&self, next: Next) -> Flow {
        match next {
            Next::Continue => Flow::Continue,
            Next::Wait(ask) => self.desk.0.permission(ask),
            Next::Close => Flow::Close,
        }
    }
}

impl Driver for HoldingDriver {
    fn on_client(&mut self, input: &mut BytesMut, wires: &mut Wires) -> Flow {
        let next = self.holder.on_client(input, wires, &mut self.desk);
        self.flow(next)
    }
    fn on_server(&mut self, input: &mut BytesMut, wires: &mut Wires) -> Flow {
        let next = self.holder.on_server(input, wires, &mut self.desk);
        self.flow(next)
    }
    fn on_permission(&mut self, wires: &mut Wires) -> Flow {
        let next = self.holder.on_permission(wires, &mut self.desk);
        self.flow(next)
    }
    fn on_client_gone(&mut self, _wires: &mut Wires) {
        self.holder.on_client_gone(&mut self.desk);
    }
    fn on_server_gone(&mut self, _wires: &mut Wires) {
        self.holder.on_server_gone(&mut self.desk);
    }
    fn idle(&self) -> bool {
        self.holder.is_idle()
    }
}
