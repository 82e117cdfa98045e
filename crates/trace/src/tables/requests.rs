//! `requests`: one row per request, ordered by id.

use super::{latin1_to_text, missing, text_to_latin1};
use crate::parquet_table::{Column, Kind, Malformed, Packing, RowReader, RowWriter, Table};
use crate::{Call, Digest, Id, Micros, Record, Request, Response, Secrets};

const CALLS: &str = "calls";

pub(crate) struct Requests;

impl Table for Requests {
    type Row = Request;

    const NAME: &'static str = "requests";
    const COLUMNS: &'static [Column] = &[
        Column::new("id", Kind::Int64, Packing::Delta).with_statistics(),
        Column::new("arrived", Kind::Timestamp, Packing::Delta).with_statistics(),
        Column::new("duration_us", Kind::Int64, Packing::Delta).with_statistics(),
        Column::new("method", Kind::Text, Packing::Dictionary),
        Column::new("target", Kind::Text, Packing::Plain).looked_up(),
        Column::new("name", Kind::Text, Packing::Dictionary)
            .of("headers")
            .bulky(),
        Column::new("value", Kind::Text, Packing::Dictionary)
            .of("headers")
            .bulky(),
        Column::new("body", Kind::Binary, Packing::Plain)
            .optional()
            .bulky(),
        Column::new("caller_traceparent", Kind::Text, Packing::Plain)
            .optional()
            .looked_up(),
        Column::new("outcome", Kind::Text, Packing::Dictionary),
        Column::new("status", Kind::UInt16, Packing::Dictionary)
            .optional()
            .with_statistics(),
        Column::new("name", Kind::Text, Packing::Dictionary)
            .of("response_headers")
            .bulky(),
        Column::new("value", Kind::Text, Packing::Dictionary)
            .of("response_headers")
            .bulky(),
        Column::new("response_digest", Kind::UInt32, Packing::WhateverIsSmaller).optional(),
        Column::new("response_bytes", Kind::Int64, Packing::Dictionary).optional(),
        Column::new("response_body", Kind::Binary, Packing::Plain)
            .optional()
            .bulky(),
        Column::new("reason", Kind::Text, Packing::Dictionary).optional(),
        Column::new("clock", Kind::Binary, Packing::Plain).optional(),
        Column::new("secrets", Kind::Binary, Packing::Plain)
            .optional()
            .bulky(),
        Column::new("peer", Kind::Text, Packing::Dictionary)
            .of(CALLS)
            .bulky(),
        Column::new("flags", Kind::UInt16, Packing::Dictionary)
            .of(CALLS)
            .bulky(),
        Column::new("offset_us", Kind::Int64, Packing::Delta)
            .of(CALLS)
            .bulky(),
        Column::new("duration_us", Kind::Int64, Packing::Delta)
            .of(CALLS)
            .bulky(),
        Column::new("sent", Kind::Binary, Packing::Plain)
            .of(CALLS)
            .bulky(),
        Column::new("received", Kind::Binary, Packing::Plain)
            .of(CALLS)
            .bulky(),
        Column::new("user_id", Kind::Text, Packing::Dictionary)
            .optional()
            .looked_up(),
        Column::new("came_to", Kind::Text, Packing::Dictionary).optional(),
        Column::new("came_from", Kind::Text, Packing::Dictionary).optional(),
        Column::new("came_by", Kind::UInt32, Packing::Dictionary).optional(),
    ];
    const ID: Option<usize> = Some(0);
    const TIME: Option<usize> = Some(1);

    fn id(row: &Request) -> u64 {
        row.id.0
    }
    fn time(row: &Request) -> i64 {
        row.arrived
    }
    fn digest(row: &Request) -> Option<u32> {
        match row.response {
            Response::Answered { body_digest, .. } => Some(body_digest.0),
            Response::Broken { .. } | Response::Unrecorded { .. } => None,
        }
    }

    fn pick(record: Record) -> Option<Request> {
        match record {
            Record::Request(row) => Some(row),
            _ => None,
        }
    }

    fn shred(row: &Request, columns: &mut RowWriter<'_>) {
        columns.int(row.id.0 as i64);
        columns.int(row.arrived);
        columns.int(row.ended.wrapping_sub(row.arrived));
        columns.bytes(row.method.as_bytes());
        columns.bytes(row.target.as_bytes());
        shred_headers(&row.headers, columns);
        columns.optional_bytes(Some(row.body.as_slice()).filter(|body| !body.is_empty()));
        columns.optional_bytes(row.caller_traceparent.as_deref().map(str::as_bytes));
        match &row.response {
            Response::Answered {
                status,
                headers,
                body_digest,
                body_bytes,
                body,
            } => {
                columns.bytes(b"answered");
                columns.optional_int(Some(i64::from(*status)));
                shred_headers(headers, columns);
                columns.optional_int(Some(i64::from(body_digest.0)));
                columns.optional_int(Some(*body_bytes as i64));
                columns.optional_bytes(body.as_deref());
                columns.optional_bytes(None);
            }
            Response::Broken { reason } => shred_unanswered("broken", reason, columns),
            Response::Unrecorded { reason } => shred_unanswered("unrecorded", reason, columns),
        }
        columns.optional_bytes(Some(row.clock.as_slice()).filter(|clock| !clock.is_empty()));
        columns.optional_bytes(row.secrets.sealed());
        shred_calls(row, columns);
        columns.optional_bytes(row.user_id.as_deref().map(str::as_bytes));
        columns.optional_bytes(row.came_to.as_deref().map(str::as_bytes));
        columns.optional_bytes(row.came_from.as_deref().map(str::as_bytes));
        columns.optional_int(row.came_by.map(i64::from));
    }

    fn assemble(columns: &mut RowReader<'_>) -> Result<Request, Malformed> {
        let id = Id(columns.int() as u64);
        let arrived = columns.int();
        let ended = arrived.wrapping_add(columns.int());
        let method = columns.text()?;
        let target = columns.text()?;
        let headers = assemble_headers(columns)?;
        let body = columns.bytes();
        let caller_traceparent = columns.optional_text()?;
        let kind = columns.word(|word| match word {
            "answered" => Some(Kept::Answered),
            "broken" => Some(Kept::Broken),
            "unrecorded" => Some(Kept::Unrecorded),
            _ => None,
        })?;
        let status = columns.optional_int();
        let response_headers = assemble_headers(columns)?;
        let digest = columns.optional_int();
        let bytes = columns.optional_int();
        let response_body = columns.optional_bytes();
        let reason = columns.optional_text()?;
        let clock = columns.bytes();
        let secrets = columns.optional_bytes();
        let calls = assemble_calls(arrived, columns)?;
        let user_id = columns.optional_text()?;
        let came_to = columns.optional_text()?;
        let came_from = columns.optional_text()?;
        let came_by = columns.optional_int();
        let response = match kind.ok_or_else(|| missing("an outcome"))? {
            Kept::Answered => Response::Answered {
                status: status.ok_or_else(|| missing("a status"))? as u16,
                headers: response_headers,
                body_digest: Digest(digest.ok_or_else(|| missing("a response digest"))? as u32),
                body_bytes: bytes.ok_or_else(|| missing("a response length"))? as u64,
                body: response_body,
            },
            Kept::Broken => Response::Broken {
                reason: reason.ok_or_else(|| missing("a reason"))?,
            },
            Kept::Unrecorded => Response::Unrecorded {
                reason: reason.ok_or_else(|| missing("a reason"))?,
            },
        };
        Ok(Request {
            id,
            arrived,
            ended,
            method,
            target,
            headers,
            body,
            caller_traceparent,
            response,
            clock,
            secrets: secrets.map_or(Secrets::None, Secrets::Sealed),
            calls,
            user_id,
            came_to,
            came_from,
            came_by: came_by.map(|process| process as u32),
        })
    }
}

enum Kept {
    Answered,
    Broken,
    Unrecorded,
}

fn shred_unanswered(outcome: &str, reason: &str, columns: &mut RowWriter<'_>) {
    columns.bytes(outcome.as_bytes());
    columns.optional_int(None);
    shred_headers(&[], columns);
    columns.optional_int(None);
    columns.optional_int(None);
    columns.optional_bytes(None);
    columns.optional_bytes(Some(reason.as_bytes()));
}

const WITHIN: i64 = 1;
const ENCRYPTED: i64 = 2;
const CLOSED: i64 = 4;

fn shred_calls(row: &Request, columns: &mut RowWriter<'_>) {
    let calls = || row.calls.iter();
    let flag = |is: bool, flag: i64| if is { flag } else { 0 };
    columns.byte_strings(calls().map(|call| &call.peer));
    columns.ints(calls().map(|call| {
        flag(call.within, WITHIN) | flag(call.encrypted, ENCRYPTED) | flag(call.closed, CLOSED)
    }));
    columns.ints(calls().map(|call| call.began.wrapping_sub(row.arrived)));
    columns.ints(calls().map(|call| call.ended.wrapping_sub(call.began)));
    columns.byte_strings(calls().map(|call| &call.sent));
    columns.byte_strings(calls().map(|call| &call.received));
}

fn assemble_calls(arrived: Micros, columns: &mut RowReader<'_>) -> Result<Vec<Call>, Malformed> {
    let (peers, flags) = (columns.byte_strings(), columns.ints());
    let (offsets, durations) = (columns.ints(), columns.ints());
    let (sent, received) = (columns.byte_strings(), columns.byte_strings());
    let times = offsets.into_iter().zip(durations);
    let contents = sent.into_iter().zip(received);
    let each = peers.into_iter().zip(flags).zip(times).zip(contents);
    each.map(|(((peer, flags), (offset, duration)), (sent, received))| {
        let began = arrived.wrapping_add(offset);
        Ok(Call {
            peer: crate::parquet_table::text(peer)?,
            within: flags & WITHIN != 0,
            encrypted: flags & ENCRYPTED != 0,
            closed: flags & CLOSED != 0,
            began,
            ended: began.wrapping_add(duration),
            sent,
            received,
        })
    })
    .collect()
}

fn shred_headers(headers: &[(String, Vec<u8>)], columns: &mut RowWriter<'_>) {
    columns.byte_strings(headers.iter().map(|(name, _)| name));
    columns.byte_strings(headers.iter().map(|(_, value)| latin1_to_text(value)));
}

fn assemble_headers(columns: &mut RowReader<'_>) -> Result<Vec<(String, Vec<u8>)>, Malformed> {
    let names = columns.byte_strings();
    let values = columns.byte_strings();
    let pairs = names.into_iter().zip(values);
    pairs
        .map(|(name, value)| Ok((crate::parquet_table::text(name)?, text_to_latin1(&value)?)))
        .collect()
}
