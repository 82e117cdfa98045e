//! Sends what [`Between`](super::between::Between) decides, and closes what stays prepared no
//! longer.

use super::ask::{Errand, MESSAGES};
use super::between::is_bracketed;
use super::client::ClientSide;
use super::forecast::Block;
use super::note::{Note, StatementNote, Work};
use super::observed::Problem;
use crate::message::frontend;
use crate::sql::{Kind, Reach, Statement};
use crate::tracker::{Sent, Tracker};

type Outstanding = Tracker<Note, StatementNote>;

impl ClientSide {
    /// What has to be done before the batch that begins with a statement. `None`: it has several,
    /// or they are not known.
    pub fn errands_before(
        &mut self,
        statement: Option<&Statement>,
        tracker: &mut Outstanding,
        note: &Note,
    ) -> Result<(), Problem> {
        let between = self.forecast.block() == Block::Idle && !self.is_within_batch();
        if !between || !self.may_inject(tracker) {
            return Ok(());
        }
        if self.between.take_raise() {
            self.errands(&[Errand::Raise], false, tracker, note)?;
        }
        let Some(statement) = statement else {
            return Ok(());
        };
        if statement.kind == (Kind::Discard { all: true }) && self.between.take_temporary() {
            let drop = [Errand::DropTemporary, Errand::DropId];
            self.errands(&drop, false, tracker, note)?;
        }
        if is_bracketed(statement) {
            self.between.open_bracket();
            self.errands(&[Errand::Before], false, tracker, note)?;
        }
        Ok(())
    }

    /// What has to be done behind a batch.
    pub fn errands_behind(
        &mut self,
        tracker: &mut Outstanding,
        note: &Note,
    ) -> Result<(), Problem> {
        if self.between.take_bracket() && self.may_inject(tracker) {
            self.errands(&[Errand::After], true, tracker, note)?;
        }
        Ok(())
    }

    /// The client leaves, and the server will drop the session's temporary tables: we do it first,
    /// where the id can be asked for. What the client left open is rolled back before that, as the
    /// server would; a batch without its `Sync` is left to the server.
    pub fn leaves(&mut self, tracker: &mut Outstanding, note: Note) -> Result<(), Problem> {
        if self.is_within_batch() || !self.may_inject(tracker) || !self.between.take_temporary() {
            return Ok(());
        }
        if self.forecast.block() == Block::Explicit {
            self.errands(&[Errand::Rollback], false, tracker, &note)?;
        }
        let last = [Errand::DropTemporary, Errand::DropId];
        self.errands(&last, false, tracker, &note)
    }

    /// Sends errands in one batch: before the message at hand, or `behind` it.
    fn errands(
        &mut self,
        errands: &[Errand],
        behind: bool,
        tracker: &mut Outstanding,
        note: &Note,
    ) -> Result<(), Problem> {
        let out = match behind {
            true => &mut self.following,
            false => &mut self.injected,
        };
        if self.asks.close_broken(out) {
            let work = Work::AskRest { inline: false };
            tracker.inject(Sent::Close, Note { work, ..*note })?;
        }
        for &errand in errands {
            self.asks.send_text(errand.text(), out);
            for sent in MESSAGES {
                let work = match sent {
                    Sent::Execute => Work::Errand(errand),
                    _ => Work::AskRest { inline: false },
                };
                tracker.inject(sent, Note { work, ..*note })?;
            }
        }
        frontend::sync(out);
        Ok(tracker.inject(Sent::Sync, note.aside())?)
    }

    /// Before a message that may reach statements of ours: none is prepared when the server gets to
    /// it.
    pub fn beware(
        &mut self,
        reach: Reach,
        tracker: &mut Outstanding,
        note: &Note,
    ) -> Result<(), Problem> {
        match reach {
            Reach::None => return Ok(()),
            Reach::Running => self.asks.kept.close(),
            Reach::Session => self.asks.kept.end(),
            Reach::Database => self.asks.kept.forbid(),
        }
        if self.may_inject(tracker) {
            let inline = self.is_within_batch();
            let closes = self.close_left(true, inline, tracker, note)?;
            if closes && !inline {
                frontend::sync(&mut self.injected);
                tracker.inject(Sent::Sync, note.aside())?;
            }
        }
        Ok(())
    }

    /// Closes what is not used any more, in the flight that is being sent. Returns whether there
    /// was something. To close fails never, also in a block that has failed.
    pub fn close_left(
        &mut self,
        surely: bool,
        inline: bool,
        tracker: &mut Outstanding,
        note: &Note,
    ) -> Result<bool, Problem> {
        let numbers = self.asks.close_left(surely, &mut self.injected);
        for &number in &numbers {
            let work = Work::Close { number, inline };
            tracker.inject(Sent::Close, Note { work, ..*note })?;
        }
        Ok(!numbers.is_empty())
    }
}
