//! Answers from the recording: the bytes that an aborted transaction got, message by message.

use bytes::{Buf, Bytes, BytesMut};
use hindcast_wire::message::{backend as server, frontend as client};

/// What is left of the recorded answers of an aborted transaction.
#[derive(Debug)]
pub struct Served {
    left: Bytes,
    /// After an error everything up to the next `Sync` goes unanswered.
    skipping: bool,
    copying: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Continues,
    /// The recorded transaction is over. `complete`: nothing is left.
    Ended { complete: bool },
    /// The recording has no answer to this.
    Exhausted,
}

impl Served {
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { left: bytes.into(), skipping: false, copying: false }
    }

    /// Puts the recorded answer to a message of the client into `out`.
    pub fn answer(&mut self, tag: u8, out: &mut BytesMut) -> Progress {
        if self.skipping && tag != client::SYNC {
            return Progress::Continues;
        }
        let ends: &[u8] = match tag {
            client::QUERY | client::FUNCTION_CALL => &[server::READY_FOR_QUERY, server::COPY_IN_RESPONSE],
            client::SYNC if self.copying => return Progress::Continues,
            client::SYNC => &[server::READY_FOR_QUERY],
            client::PARSE => &[server::PARSE_COMPLETE, server::ERROR_RESPONSE],
            client::BIND => &[server::BIND_COMPLETE, server::ERROR_RESPONSE],
            client::CLOSE => &[server::CLOSE_COMPLETE, server::ERROR_RESPONSE],
            client::DESCRIBE => &[server::ROW_DESCRIPTION, server::NO_DATA, server::ERROR_RESPONSE],
            client::EXECUTE => {
                &[server::COMMAND_COMPLETE, server::EMPTY_QUERY_RESPONSE, server::PORTAL_SUSPENDED, server::ERROR_RESPONSE, server::COPY_IN_RESPONSE]
            }
            client::COPY_DONE | client::COPY_FAIL => {
                self.copying = false;
                &[server::READY_FOR_QUERY, server::COMMAND_COMPLETE, server::ERROR_RESPONSE]
            }
            _ => return Progress::Continues,
        };
        loop {
            let Some(length) = self.left.get(1..5).map(|mut head| head.get_u32() as usize + 1).filter(|&length| length <= self.left.len()) else {
                return Progress::Exhausted;
            };
            let message = self.left.split_to(length);
            out.extend_from_slice(&message);
            let tag_back = message[0];
            if !ends.contains(&tag_back) {
                continue;
            }
            match tag_back {
                server::ERROR_RESPONSE => self.skipping = !matches!(tag, client::QUERY | client::FUNCTION_CALL),
                server::COPY_IN_RESPONSE => self.copying = true,
                server::READY_FOR_QUERY => {
                    self.skipping = false;
                    if message.get(5) == Some(&b'I') {
                        return Progress::Ended { complete: self.left.is_empty() };
                    }
                }
                _ => {}
            }
            // What comes between two answers (notices, parameter reports) belongs to the next one.
            return Progress::Continues;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        bytes.extend((body.len() as u32 + 4).to_be_bytes());
        bytes.extend(body);
        bytes
    }

    #[test]
    fn a_failed_batch_is_answered_up_to_its_error_and_then_at_its_sync() {
        let recorded = [message(b'1', b""), message(b'2', b""), message(b'E', b"C23505\0\0"), message(b'Z', b"I")].concat();
        let mut served = Served::new(recorded.clone());
        let mut out = BytesMut::new();
        for tag in [client::PARSE, client::BIND, client::DESCRIBE, client::EXECUTE] {
            assert_eq!(served.answer(tag, &mut out), Progress::Continues);
        }
        assert_eq!(out.len(), recorded.len() - 6);
        assert_eq!(served.answer(client::SYNC, &mut out), Progress::Ended { complete: true });
        assert_eq!(&out[..], &recorded[..]);
    }

    #[test]
    fn a_query_is_answered_up_to_ready() {
        let recorded = [message(b'C', b"BEGIN\0"), message(b'Z', b"T"), message(b'E', b"C40001\0\0"), message(b'Z', b"E"), message(b'C', b"ROLLBACK\0"), message(b'Z', b"I")].concat();
        let mut served = Served::new(recorded.clone());
        let mut out = BytesMut::new();
        assert_eq!(served.answer(client::QUERY, &mut out), Progress::Continues);
        assert_eq!(served.answer(client::QUERY, &mut out), Progress::Continues);
        assert_eq!(served.answer(client::QUERY, &mut out), Progress::Ended { complete: true });
        assert_eq!(&out[..], &recorded[..]);
    }

    #[test]
    fn more_questions_than_answers_are_noticed() {
        let mut served = Served::new(message(b'1', b""));
        let mut out = BytesMut::new();
        assert_eq!(served.answer(client::PARSE, &mut out), Progress::Continues);
        assert_eq!(served.answer(client::BIND, &mut out), Progress::Exhausted);
    }
}
