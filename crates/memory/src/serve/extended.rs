//! The extended protocol: statements that are prepared, bound to values, and executed in parts.

use bytes::{Buf, BytesMut};
use hindcast_wire::limits::PREPARED_MAX;
use hindcast_wire::message::backend;
use hindcast_wire::message::frontend::{self, Bind, Formats, Parse, Target};

use super::answer::{no_portal, put_complete, put_description, put_row, shown, utf8};
use super::portal::{Kept, Portal};
use super::session::{Failure, Session};
use super::sql::{self, Kind, SqlError, Statement};
use super::values;

impl Session<'_> {
    pub(super) fn parse(&mut self, body: &[u8]) -> Result<(), Failure> {
        let message = Parse::parse(body)?;
        let text = utf8(message.text)?;
        let mut types = message.types;
        let count = types.get_u16();
        let declared: Vec<u32> = (0..count).map(|_| types.get_u32()).collect();
        if !message.name.is_empty() && self.statements.contains_key(message.name) {
            return Err(Failure::Sql(SqlError::new(
                "42P05",
                format!(
                    "prepared statement \"{}\" already exists",
                    shown(message.name)
                ),
            )));
        }
        if self.statements.len() >= PREPARED_MAX {
            return Err(Failure::Sql(SqlError::new(
                "53400",
                "too many prepared statements",
            )));
        }
        let several = sql::split(text)?.len() > 1;
        if several {
            return Err(Failure::Sql(SqlError::new(
                "42601",
                "cannot insert multiple commands into a prepared statement",
            )));
        }
        let statement = self.prepare(text, &declared)?;
        self.statements.insert(message.name.to_vec(), statement);
        backend::parse_complete(&mut self.link.out);
        Ok(())
    }

    pub(super) fn statement(&self, name: &[u8]) -> Result<&Statement, SqlError> {
        self.statements.get(name).ok_or_else(|| {
            SqlError::new(
                "26000",
                format!("prepared statement \"{}\" does not exist", shown(name)),
            )
        })
    }

    pub(super) fn bind(&mut self, body: &[u8]) -> Result<(), Failure> {
        let bind = Bind::parse(body)?;
        let statement = self.statement(bind.statement)?.clone();
        self.check_block(&statement)?;
        let types = statement.parameters();
        if bind.parameters.len() != types.len() {
            return Err(Failure::Sql(SqlError::new(
                "08P01",
                format!(
                    "bind message supplies {} parameters, but the prepared statement requires {}",
                    bind.parameters.len(),
                    types.len()
                ),
            )));
        }
        let formats = &bind.parameter_formats;
        if formats.len() > 1 && formats.len() != types.len() {
            return Err(Failure::Sql(SqlError::new(
                "08P01",
                format!(
                    "bind message has {} parameter formats but {} parameters",
                    formats.len(),
                    types.len()
                ),
            )));
        }
        let mut parameters = Vec::with_capacity(types.len());
        for (i, (value, &type_oid)) in bind.parameters.iter().zip(types).enumerate() {
            let format = match formats.as_slice() {
                [] => 0,
                [all] => *all,
                each => each[i],
            };
            values::check(type_oid, format)?;
            parameters.push(match value {
                None => None,
                Some(value) if format == 0 => Some(values::utf8(value)?),
                Some(value) => Some(values::to_text(type_oid, value)?),
            });
        }
        if let Formats::Each(formats) = &bind.result_formats
            && formats.len() != statement.columns().len()
        {
            return Err(Failure::Sql(SqlError::new(
                "08P01",
                format!(
                    "bind message has {} result formats but query has {} columns",
                    formats.len(),
                    statement.columns().len()
                ),
            )));
        }
        for (i, column) in statement.columns().iter().enumerate() {
            values::check(column.type_oid, bind.result_formats.of(i))?;
        }
        if !bind.portal.is_empty() && self.portals.contains_key(bind.portal) {
            return Err(Failure::Sql(SqlError::new(
                "42P03",
                format!("cursor \"{}\" already exists", shown(bind.portal)),
            )));
        }
        if self.portals.len() >= PREPARED_MAX {
            return Err(Failure::Sql(SqlError::new("53400", "too many portals")));
        }
        let portal = Portal {
            statement,
            parameters,
            formats: bind.result_formats,
            kept: None,
        };
        self.portals.insert(bind.portal.to_vec(), portal);
        backend::bind_complete(&mut self.link.out);
        Ok(())
    }

    pub(super) fn describe(&mut self, body: &[u8]) -> Result<(), Failure> {
        match Target::parse(body)? {
            Target::Statement(name) => {
                let statement = self.statement(name)?.clone();
                backend::parameter_description(&mut self.link.out, statement.parameters());
                put_description(&mut self.link.out, statement.columns(), None);
            }
            Target::Portal(name) => {
                let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?;
                put_description(&mut self.link.out, portal.columns(), Some(&portal.formats));
            }
        }
        Ok(())
    }

    pub(super) fn execute_portal(&mut self, body: &[u8]) -> Result<(), Failure> {
        let (name, rows_max) = frontend::parse_execute(body)?;
        // A statement may end its transaction, and with it the portals.
        let mut portal = self.portals.remove(name).ok_or_else(|| no_portal(name))?;
        self.check_block(&portal.statement)?;
        let reads = matches!(portal.statement.kind(), Kind::Select | Kind::Show);
        if !reads {
            self.run(&portal.statement, &portal.parameters, &portal.formats)?;
            return Ok(());
        }
        if portal.kept.is_none() && rows_max == 0 {
            self.run(&portal.statement, &portal.parameters, &portal.formats)?;
            // Executed again it has no more rows.
            portal.kept = Some(Kept::default());
        } else {
            if portal.kept.is_none() {
                let mut kept = Kept::default();
                let mut row = BytesMut::new();
                self.read(&portal.statement, &portal.parameters, |_, values| {
                    put_row(&mut row, portal.columns(), &portal.formats, values)?;
                    kept.push(&mut row)?;
                    Ok(())
                })?;
                portal.kept = Some(kept);
            }
            let kept = portal.kept.get_or_insert_default();
            let mut count = 0;
            while (rows_max == 0 || count < rows_max)
                && let Some(row) = kept.next()
            {
                self.link.out.extend_from_slice(&row);
                self.link.flush_if_much()?;
                count += 1;
            }
            // As Postgres has it: suspended if as many came as were asked for, even if these were
            // the last.
            if rows_max != 0 && count == rows_max {
                backend::portal_suspended(&mut self.link.out);
            } else {
                put_complete(
                    &mut self.link.out,
                    portal.statement.kind(),
                    u64::from(count),
                );
            }
        }
        self.portals.insert(name.to_vec(), portal);
        Ok(())
    }
}
