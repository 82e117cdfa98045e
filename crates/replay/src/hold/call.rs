//! Calls of functions by a message of the protocol, as drivers make those of large objects.

use std::sync::LazyLock;

use hindcast_wire::frame::Frame;
use hindcast_wire::sql::{Company, Statement};

use super::answers::{Expect, Owner};
use super::names::Values;
use super::plan::{Plan, Step};
use super::{Context, Holder, Unplanned};

/// What an observer takes a call to be completed with.
pub(super) const COMPLETED: &[u8] = b"FUNCTION\0";

/// A call, as an observer sees it. It does not mind a `BEGIN` of ours in front of it.
static CALL: LazyLock<Statement> = LazyLock::new(|| Statement {
    company: Company::Any,
    ..hindcast_wire::FUNCTION_CALL.clone()
});

impl Holder {
    /// A call is a statement like others: it takes a snapshot, and may begin its transaction.
    pub(super) fn plan_call(
        &mut self,
        frame: &Frame,
        cx: &mut impl Context,
    ) -> Result<Plan, Unplanned> {
        let mut plan = Plan::default();
        if self.transaction.is_none() {
            self.end_implicit(&mut plan);
        }
        self.unsynced = false;
        if let Some(tx) = self.enter(&[&CALL], Values::default(), None, cx, &mut plan)? {
            plan.steps.push_back(Step::Serve {
                tx,
                frames: vec![frame.clone()],
                completed: 0,
            });
            return Ok(plan);
        }
        let look = self.next_look(&CALL);
        plan.steps.extend(look.map(Step::Hold));
        self.put_ahead(&CALL, false, cx, &mut plan);
        plan.steps.extend(self.before(&CALL));
        self.transcribe(|transcript| transcript.text(CALL.fingerprint.text.as_bytes()));
        let wrapped = self.is_wrapped();
        let owner = match wrapped {
            true => Owner::Withheld,
            false => Owner::Client,
        };
        plan.message([(Expect::FunctionCall, owner)], |bytes| {
            bytes.extend_from_slice(&frame.0);
        });
        plan.send();
        plan.settle();
        if wrapped {
            self.leave_wrapped(&[&CALL], cx, &mut plan);
        }
        Ok(plan)
    }
}
