//! One session: the protocol, and what transactions mean where nothing is written.

use std::collections::HashMap;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use hindcast_pg::Lsn;
use hindcast_store::Snapshot;
use hindcast_wire::frame::Frame;
use hindcast_wire::message::Malformed;
use hindcast_wire::message::backend::{self, Status};
use hindcast_wire::message::frontend::{self, Formats, Target};

use super::answer::{
    aborted, not_there, put_complete, put_description, put_error, put_notice, put_row, utf8,
};
use super::link::{Link, LinkError};
use super::place::Place;
use super::portal::Portal;
use super::settings::{Settings, parse_as_of};
use super::sql::{self, AsOf, Kind, SqlError, Statement, View};
use super::startup::startup;
use super::values;

/// Serves a connection until either side ends it.
pub fn run(stream: Arc<TcpStream>, place: &Place) {
    let Ok(mut link) = Link::new(stream) else {
        return;
    };
    let Some(settings) = startup(&mut link, place) else {
        return;
    };
    let mut session = Session {
        link,
        place,
        settings,
        block: None,
        skipping: false,
        statements: HashMap::new(),
        portals: HashMap::new(),
    };
    let end = session.serve();
    let reason = match end {
        End::Over => return,
        End::Fatal(reason) => reason,
    };
    put_error(&mut session.link.out, "FATAL", &reason);
    // Whether it is heard is not known in any case.
    let _ = session.link.flush();
}

/// Why a session is over.
pub(super) enum End {
    /// Nobody listens.
    Over,
    Fatal(SqlError),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        End::Over
    }
}

/// Why something was not done.
pub(super) enum Failure {
    Sql(SqlError),
    End(End),
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Failure::Sql(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::End(error.into())
    }
}

impl From<Malformed> for Failure {
    fn from(error: Malformed) -> Self {
        Failure::Sql(SqlError::new("08P01", error.to_string()))
    }
}

/// A transaction block.
pub(super) struct Block {
    failed: bool,
    /// What its reads see, and the setting with which that was taken.
    snapshot: Option<(Option<String>, Arc<Snapshot>)>,
    /// What a rollback goes back to.
    settings: Settings,
    /// What a commit leaves: all but what was set for the block alone.
    lasting: Settings,
    savepoints: Vec<Savepoint>,
}

impl Block {
    fn new(settings: &Settings) -> Self {
        Self {
            failed: false,
            snapshot: None,
            settings: settings.clone(),
            lasting: settings.clone(),
            savepoints: Vec::new(),
        }
    }
}

struct Savepoint {
    name: String,
    /// What going back to it goes back to, as in [`Block`].
    settings: Settings,
    lasting: Settings,
}

pub(super) struct Session<'p> {
    pub link: Link,
    place: &'p Place,
    settings: Settings,
    block: Option<Block>,
    /// After an error of the extended protocol, until `Sync`.
    skipping: bool,
    pub statements: HashMap<Vec<u8>, Statement>,
    pub portals: HashMap<Vec<u8>, Portal>,
}

impl Session<'_> {
    fn serve(&mut self) -> End {
        loop {
            let frame = match self.link.message() {
                Ok(frame) => frame,
                Err(_) if self.place.shared.is_stopping() => {
                    return End::Fatal(SqlError::new(
                        "57P01",
                        "terminating connection: the server is shutting down",
                    ));
                }
                Err(LinkError::Closed) => return End::Over,
                Err(LinkError::Silent) => {
                    return End::Fatal(SqlError::new(
                        "25P03",
                        "terminating connection due to idle-in-transaction timeout",
                    ));
                }
                Err(LinkError::Garbage(what)) => {
                    return End::Fatal(SqlError::new("08P01", what));
                }
            };
            if frame.tag() == frontend::TERMINATE {
                return End::Over;
            }
            // What was cancelled is over; this is something new.
            self.place.cancelled.store(false, Ordering::SeqCst);
            match self.message(&frame) {
                Ok(()) => {}
                Err(Failure::End(end)) => return end,
                Err(Failure::Sql(error)) => {
                    self.fail(&error);
                    self.skipping = true;
                    // A client that sent `Flush` behind this, which is passed over with the rest,
                    // waits for it before it sends `Sync`.
                    if let Err(error) = self.link.flush() {
                        return error.into();
                    }
                }
            }
            if let Err(error) = self.link.flush_if_much() {
                return error.into();
            }
        }
    }

    fn message(&mut self, frame: &Frame) -> Result<(), Failure> {
        match frame.tag() {
            frontend::QUERY => {
                self.skipping = false;
                match self.query(frame.body()) {
                    Err(Failure::Sql(error)) => self.fail(&error),
                    other => other?,
                }
                self.ready()
            }
            frontend::SYNC => {
                self.skipping = false;
                self.ready()
            }
            frontend::FUNCTION_CALL => {
                self.skipping = false;
                self.fail(&SqlError::new("0A000", "functions cannot be called here"));
                self.ready()
            }
            // Left over from a `COPY` that was refused.
            frontend::COPY_DATA | frontend::COPY_DONE | frontend::COPY_FAIL => Ok(()),
            _ if self.skipping => Ok(()),
            frontend::PARSE => self.parse(frame.body()),
            frontend::BIND => self.bind(frame.body()),
            frontend::DESCRIBE => self.describe(frame.body()),
            frontend::EXECUTE => self.execute_portal(frame.body()),
            frontend::CLOSE => {
                match Target::parse(frame.body())? {
                    Target::Statement(name) => drop(self.statements.remove(name)),
                    Target::Portal(name) => drop(self.portals.remove(name)),
                }
                backend::close_complete(&mut self.link.out);
                Ok(())
            }
            frontend::FLUSH => Ok(self.link.flush()?),
            other => Err(Failure::End(End::Fatal(SqlError::new(
                "08P01",
                format!("invalid frontend message type {other}"),
            )))),
        }
    }

    fn fail(&mut self, error: &SqlError) {
        put_error(&mut self.link.out, "ERROR", error);
        if let Some(block) = &mut self.block {
            block.failed = true;
            // Nobody will read from it any more, unless it goes back to a savepoint.
            if block.savepoints.is_empty() {
                block.snapshot = None;
            }
            self.portals.clear();
        }
    }

    fn ready(&mut self) -> Result<(), Failure> {
        let status = match &self.block {
            None => Status::Idle,
            Some(block) if block.failed => Status::Failed,
            Some(_) => Status::InTransaction,
        };
        if self.block.is_none() {
            self.portals.clear();
        }
        backend::ready_for_query(&mut self.link.out, status);
        self.link.flush()?;
        let patience = self
            .block
            .as_ref()
            .and(self.settings.idle_in_transaction_timeout());
        Ok(self.link.set_patience(patience)?)
    }

    fn query(&mut self, body: &[u8]) -> Result<(), Failure> {
        let text = utf8(frontend::parse_query(body)?)?;
        self.portals.remove(&b""[..]);
        let statements = sql::split(text)?;
        if statements.is_empty() {
            backend::empty_query_response(&mut self.link.out);
        }
        let mut after = 0;
        for part in &statements {
            let start = text[after..]
                .find(part.as_str())
                .map_or(after, |at| after + at);
            after = (start + part.len()).min(text.len());
            let before = text[..start].chars().count() as u32;
            self.query_one(part).map_err(|failure| match failure {
                Failure::Sql(error) => Failure::Sql(SqlError {
                    position: error.position.map(|position| position + before),
                    ..error
                }),
                end => end,
            })?;
        }
        Ok(())
    }

    fn query_one(&mut self, text: &str) -> Result<(), Failure> {
        let statement = self.prepare(text, &[])?;
        if matches!(statement.kind(), Kind::Select | Kind::Show) {
            put_description(&mut self.link.out, statement.columns(), None);
        }
        self.run(&statement, &[], &Formats::Text)
    }

    pub(super) fn prepare(&self, text: &str, declared: &[u32]) -> Result<Statement, SqlError> {
        let prepared = sql::prepare(text, declared, &self.place.shared.catalog);
        match &prepared {
            Ok(statement) => self.check_block(statement)?,
            // What cannot be understood is no end of a block either.
            Err(_) if self.is_failed() => return Err(aborted()),
            Err(_) => {}
        }
        prepared
    }

    fn is_failed(&self) -> bool {
        self.block.as_ref().is_some_and(|block| block.failed)
    }

    /// In a block that failed, only its end is possible.
    pub(super) fn check_block(&self, statement: &Statement) -> Result<(), SqlError> {
        match statement.kind() {
            Kind::Commit | Kind::Rollback | Kind::RollbackTo { .. } | Kind::Empty => Ok(()),
            _ if self.is_failed() => Err(aborted()),
            _ => Ok(()),
        }
    }

    /// Does what a statement says, and tells that it is done.
    pub(super) fn run(
        &mut self,
        statement: &Statement,
        parameters: &[Option<Vec<u8>>],
        formats: &Formats,
    ) -> Result<(), Failure> {
        let kind = statement.kind().clone();
        let mut count = 0;
        match &kind {
            Kind::Select | Kind::Show => {
                count = self.read(statement, parameters, |link, values| {
                    put_row(&mut link.out, statement.columns(), formats, values)?;
                    Ok(link.flush_if_much()?)
                })?;
            }
            Kind::Set { local: true, .. } if self.block.is_none() => put_notice(
                &mut self.link.out,
                "25P01",
                "SET LOCAL can only be used in transaction blocks",
            ),
            Kind::Set { name, value, local } => {
                let warning = self.settings.set(name, value)?;
                if let Some(block) = self.block.as_mut().filter(|_| !local) {
                    block.lasting.set(name, value)?;
                }
                if let Some(warning) = warning {
                    put_notice(&mut self.link.out, "01000", &warning);
                }
                self.report(name);
            }
            Kind::Reset { name } => {
                self.settings.reset(name.as_deref())?;
                if let Some(block) = &mut self.block {
                    block.lasting.reset(name.as_deref())?;
                }
                self.report_all();
            }
            Kind::Begin if self.block.is_some() => put_notice(
                &mut self.link.out,
                "25001",
                "there is already a transaction in progress",
            ),
            Kind::Begin => self.block = Some(Block::new(&self.settings)),
            Kind::Savepoint { name } | Kind::Release { name } | Kind::RollbackTo { name } => {
                self.savepoint(&kind, name)?;
            }
            Kind::Commit | Kind::Rollback => return self.end_block(&kind),
            Kind::Empty => {
                backend::empty_query_response(&mut self.link.out);
                return Ok(());
            }
            Kind::DiscardAll if self.block.is_some() => {
                return Err(Failure::Sql(SqlError::new(
                    "25001",
                    "DISCARD ALL cannot run inside a transaction block",
                )));
            }
            Kind::DiscardAll => {
                self.settings.reset(None)?;
                self.report_all();
                self.statements.clear();
                self.portals.clear();
            }
            Kind::Deallocate { name: None } => self.statements.clear(),
            Kind::Deallocate { name: Some(name) } => {
                self.statement(name.as_bytes())?;
                self.statements.remove(name.as_bytes());
            }
        }
        put_complete(&mut self.link.out, &kind, count);
        Ok(())
    }

    fn savepoint(&mut self, kind: &Kind, name: &str) -> Result<(), SqlError> {
        let Some(block) = &mut self.block else {
            let what = "SAVEPOINT, RELEASE and ROLLBACK TO can only be used in transaction blocks";
            return Err(SqlError::new("25P01", what));
        };
        if let Kind::Savepoint { .. } = kind {
            block.savepoints.push(Savepoint {
                name: name.to_owned(),
                settings: self.settings.clone(),
                lasting: block.lasting.clone(),
            });
            return Ok(());
        }
        let at = block.savepoints.iter().rposition(|it| it.name == name);
        let at = at.ok_or_else(|| {
            SqlError::new("3B001", format!("savepoint \"{name}\" does not exist"))
        })?;
        if let Kind::Release { .. } = kind {
            block.savepoints.truncate(at);
            return Ok(());
        }
        block.savepoints.truncate(at + 1);
        let back = &block.savepoints[at];
        self.settings = back.settings.clone();
        block.lasting = back.lasting.clone();
        block.failed = false;
        self.portals.clear();
        self.report_all();
        Ok(())
    }

    fn end_block(&mut self, kind: &Kind) -> Result<(), Failure> {
        let rolled_back = match self.block.take() {
            None => {
                put_notice(
                    &mut self.link.out,
                    "25P01",
                    "there is no transaction in progress",
                );
                *kind == Kind::Rollback
            }
            Some(block) => {
                let back = block.failed || *kind == Kind::Rollback;
                self.settings = if back { block.settings } else { block.lasting };
                self.report_all();
                back
            }
        };
        self.portals.clear();
        let tag: &[u8] = if rolled_back { b"ROLLBACK" } else { b"COMMIT" };
        backend::command_complete(&mut self.link.out, tag);
        Ok(())
    }

    /// Tells the client of a setting that it follows.
    fn report(&mut self, name: &str) {
        let settings = self.settings.reported();
        for (known, value) in settings.filter(|(known, _)| known.eq_ignore_ascii_case(name)) {
            backend::parameter_status(&mut self.link.out, known.as_bytes(), value.as_bytes());
        }
    }

    /// Those that can have changed when many do.
    fn report_all(&mut self) {
        self.report("application_name");
        self.report("client_encoding");
    }

    /// Which state a statement reads.
    fn snapshot(
        &mut self,
        statement: &Statement,
        parameters: &[Option<Vec<u8>>],
    ) -> Result<Arc<Snapshot>, SqlError> {
        let store = &self.place.shared.store;
        let state = |text: &str, at| {
            let snapshot = store.snapshot_at(at);
            snapshot
                .map(Arc::new)
                .map_err(|error| not_there(text, &error))
        };
        let at = |text: &str| state(text, parse_as_of(text)?);
        match statement.as_of() {
            Some(AsOf::Text(text)) => return at(text),
            Some(AsOf::Parameter(number)) => {
                let value = parameters.get(*number).and_then(Option::as_deref);
                let value = value.ok_or_else(|| {
                    SqlError::new("22004", "AS OF takes an LSN or a time, and got NULL")
                })?;
                return at(utf8(value)?);
            }
            Some(AsOf::Ago { text, micros }) => {
                let time = now_micros().saturating_sub(*micros);
                return state(text, hindcast_store::AsOf::Time(time));
            }
            None => {}
        }
        let setting = self.settings.as_of();
        if let Some(block) = &self.block
            && let Some((taken_with, snapshot)) = &block.snapshot
            && taken_with.as_deref() == setting
        {
            return Ok(snapshot.clone());
        }
        let snapshot = match setting {
            _ if *statement.kind() == Kind::Show => return Ok(Arc::new(store.snapshot())),
            Some(text) => at(text)?,
            None => Arc::new(store.snapshot()),
        };
        if let Some(block) = &mut self.block {
            block.snapshot = Some((setting.map(str::to_owned), snapshot.clone()));
        }
        Ok(snapshot)
    }

    /// Executes a statement that has rows.
    pub(super) fn read(
        &mut self,
        statement: &Statement,
        parameters: &[Option<Vec<u8>>],
        mut row: impl FnMut(&mut Link, &[Option<&[u8]>]) -> Result<(), Failure>,
    ) -> Result<u64, Failure> {
        if *statement.kind() == Kind::Show
            && let Some(column) = statement.columns().first()
            && let Some(value) = self.settings.custom(&column.name)
        {
            row(&mut self.link, &[Some(value.as_bytes())])?;
            return Ok(1);
        }
        let snapshot = self.snapshot(statement, parameters)?;
        let place = self.place;
        let deadline = self
            .settings
            .statement_timeout()
            .and_then(|limit| Instant::now().checked_add(limit));
        let (settings, link) = (&self.settings, &mut self.link);
        let status = || status(settings, place, &snapshot);
        let cancelled = || SqlError::new("57014", "canceling statement due to user request");
        let interrupted = || {
            if place.cancelled.load(Ordering::Relaxed) {
                return Err(cancelled());
            }
            if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                return Err(SqlError::new(
                    "57014",
                    "canceling statement due to statement timeout",
                ));
            }
            Ok(())
        };
        let view = View {
            snapshot: &snapshot,
            catalog: &place.shared.catalog,
            status: &status,
            interrupted: &interrupted,
        };
        let mut end = None;
        let result = sql::execute(statement, parameters, &view, &mut |values| {
            interrupted()?;
            match row(link, values) {
                Ok(()) => Ok(()),
                Err(Failure::Sql(error)) => Err(error),
                Err(Failure::End(reason)) => {
                    end = Some(reason);
                    Err(cancelled())
                }
            }
        });
        match end {
            Some(end) => Err(Failure::End(end)),
            None => Ok(result?),
        }
    }
}

/// Since 1970.
fn now_micros() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| i64::try_from(now.as_micros()).unwrap_or(i64::MAX))
}

/// What `SHOW` and `hindcast.status` say.
fn status(settings: &Settings, place: &Place, snapshot: &Snapshot) -> Vec<(&'static str, String)> {
    let store = &place.shared.store;
    let (mark, oldest, metrics) = (snapshot.mark(), store.oldest(), store.metrics());
    let lag = match metrics.lag_rows {
        0 => 0,
        _ => (now_micros() - store.visible().time).max(0) / 1000,
    };
    let time = |micros| values::timestamp(micros, true);
    let mut all: Vec<_> = settings
        .all()
        .map(|(name, value)| (name, value.to_owned()))
        .collect();
    all.extend([
        ("hindcast.database", place.shared.database.clone()),
        ("hindcast.lsn", Lsn(mark.lsn).to_string()),
        ("hindcast.time", time(mark.time)),
        ("hindcast.visible_lsn", Lsn(mark.lsn).to_string()),
        ("hindcast.visible_time", time(mark.time)),
        ("hindcast.lag_ms", lag.to_string()),
        ("hindcast.oldest_lsn", Lsn(oldest.lsn).to_string()),
        ("hindcast.oldest_time", time(oldest.time)),
        ("hindcast.rows_applied", metrics.applied.to_string()),
        ("hindcast.deferred", metrics.deferred.to_string()),
    ]);
    all
}
