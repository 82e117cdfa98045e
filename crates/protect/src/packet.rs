//! The headers of a TCP packet over IPv4.

use std::net::{Ipv4Addr, SocketAddrV4};

use serde::{Deserialize, Serialize};

pub const FIN: u8 = 0x01;
pub const SYN: u8 = 0x02;
pub const RST: u8 = 0x04;
pub const ACK: u8 = 0x10;

/// What both sides say of themselves when they connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    pub segment: Option<u16>,
    pub window_scale: Option<u8>,
    pub selective: bool,
    /// The sender's clock.
    pub timestamp: Option<u32>,
}

/// A packet, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    pub from: SocketAddrV4,
    pub to: SocketAddrV4,
    pub sequence: u32,
    pub acknowledged: u32,
    pub flags: u8,
    pub window: u16,
    pub options: Options,
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// `None` for what is no whole header of TCP over IPv4. The payload may be cut off.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let first = *bytes.first()?;
        let header = usize::from(first & 0xf) * 4;
        if first >> 4 != 4 || header < 20 || *bytes.get(9)? != 6 {
            return None;
        }
        let total = usize::from(u16::from_be_bytes(two(bytes, 2)?));
        let end = if total == 0 {
            bytes.len()
        } else {
            total.min(bytes.len())
        };
        let tcp = bytes.get(header..end)?;
        let data = usize::from(*tcp.get(12)? >> 4) * 4;
        let options = tcp.get(20..data)?;
        let address = |at: usize| -> Option<Ipv4Addr> {
            Some(Ipv4Addr::from(
                <[u8; 4]>::try_from(bytes.get(at..at + 4)?).ok()?,
            ))
        };
        let port = |at: usize| two(tcp, at).map(u16::from_be_bytes);
        let word = |at: usize| -> Option<u32> {
            Some(u32::from_be_bytes(tcp.get(at..at + 4)?.try_into().ok()?))
        };
        Some(Packet {
            from: SocketAddrV4::new(address(12)?, port(0)?),
            to: SocketAddrV4::new(address(16)?, port(2)?),
            sequence: word(4)?,
            acknowledged: word(8)?,
            flags: tcp[13],
            window: u16::from_be_bytes(two(tcp, 14)?),
            options: parse_options(options),
            payload: &tcp[data..],
        })
    }

    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Forms a packet of data: between which ends, with which sequence numbers (its own, and what it
/// acknowledges).
pub fn form(
    (from, to): (SocketAddrV4, SocketAddrV4),
    (sequence, acknowledged): (u32, u32),
    payload: &[u8],
) -> Vec<u8> {
    let mut made = unsummed(
        (from, to),
        (sequence, acknowledged),
        ACK | PUSH,
        &[],
        payload,
    );
    made[34..36].copy_from_slice(&WINDOW.to_be_bytes());
    let checksum = checksum(&made);
    made[36..38].copy_from_slice(&checksum.to_be_bytes());
    made
}

/// A packet without a window and without a checksum. The kernel fills in the number and the
/// checksum of the outer header.
fn unsummed(
    (from, to): (SocketAddrV4, SocketAddrV4),
    (sequence, acknowledged): (u32, u32),
    flags: u8,
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let total = (HEADERS + options.len() + payload.len()) as u16;
    let mut made = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0];
    made[2..4].copy_from_slice(&total.to_be_bytes());
    made.extend(from.ip().octets());
    made.extend(to.ip().octets());
    made.extend(from.port().to_be_bytes());
    made.extend(to.port().to_be_bytes());
    made.extend(sequence.to_be_bytes());
    made.extend(acknowledged.to_be_bytes());
    made.extend([(5 + options.len() as u8 / 4) << 4, flags]);
    made.extend([0; 6]);
    made.extend(options);
    made.extend(payload);
    made
}

const HEADERS: usize = 40;
const PUSH: u8 = 0x08;
/// The client keeps the larger one that it knows.
const WINDOW: u16 = 64;

/// Of a packet with headers as [`form`] makes them: over what follows the outer one, and a part of
/// that.
fn checksum(packet: &[u8]) -> u16 {
    let inner = &packet[20..];
    let words = |bytes: &[u8]| -> u32 {
        bytes
            .chunks(2)
            .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)))
            .sum()
    };
    let mut sum = words(&packet[12..20]) + 6 + inner.len() as u32 + words(inner);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn two(bytes: &[u8], at: usize) -> Option<[u8; 2]> {
    bytes.get(at..at + 2)?.try_into().ok()
}

fn parse_options(mut bytes: &[u8]) -> Options {
    let mut found = Options::default();
    while let [kind, rest @ ..] = bytes {
        match (kind, rest) {
            (0, _) => break,
            (1, _) => bytes = rest,
            (kind, [length, ..]) => {
                let Some(body) = bytes.get(2..usize::from(*length)) else {
                    break;
                };
                match (kind, body) {
                    (2, [high, low]) => found.segment = Some(u16::from_be_bytes([*high, *low])),
                    (3, [scale]) => found.window_scale = Some(*scale),
                    (4, []) => found.selective = true,
                    (8, [a, b, c, d, ..]) => {
                        found.timestamp = Some(u32::from_be_bytes([*a, *b, *c, *d]));
                    }
                    _ => {}
                }
                bytes = &bytes[usize::from(*length)..];
            }
            _ => break,
        }
    }
    found
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A packet as the kernel would form it, without checksums.
    pub fn packet(
        from: SocketAddrV4,
        to: SocketAddrV4,
        (sequence, acknowledged): (u32, u32),
        flags: u8,
        options: &[u8],
        payload: &[u8],
    ) -> Vec<u8> {
        assert_eq!(options.len() % 4, 0);
        let mut made = unsummed(
            (from, to),
            (sequence, acknowledged),
            flags,
            options,
            payload,
        );
        made[34] = 1;
        made
    }

    #[test]
    fn a_packet_says_who_what_and_how() {
        let (from, to) = (
            "10.0.0.2:4000".parse().unwrap(),
            "10.0.0.10:11211".parse().unwrap(),
        );
        let options = [
            2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0, 1, 2, 0, 0, 0, 0, 1, 3, 3, 7,
        ];
        let bytes = packet(from, to, (7, 9), SYN | ACK, &options, b"hello");
        let found = Packet::parse(&bytes).unwrap();
        assert_eq!((found.from, found.to), (from, to));
        assert_eq!(
            (found.sequence, found.acknowledged, found.window),
            (7, 9, 256)
        );
        assert!(found.has(SYN) && found.has(ACK) && !found.has(FIN));
        let expected = Options {
            segment: Some(1460),
            window_scale: Some(7),
            selective: true,
            timestamp: Some(0x102),
        };
        assert_eq!((found.options, found.payload), (expected, &b"hello"[..]));
    }

    #[test]
    fn a_formed_packet_is_one_whose_sum_is_right() {
        let (from, to) = (
            "10.0.0.10:80".parse().unwrap(),
            "10.0.0.2:4000".parse().unwrap(),
        );
        for payload in [&b"odd"[..], b"even", &[0xff; 1400]] {
            let bytes = form((from, to), (7, u32::MAX), payload);
            let found = Packet::parse(&bytes).unwrap();
            assert_eq!((found.from, found.to, found.payload), (from, to, payload));
            assert_eq!((found.sequence, found.acknowledged), (7, u32::MAX));
            // With the sum in its place the whole sums up to nothing.
            assert_eq!(checksum(&bytes), 0);
        }
    }

    #[test]
    fn what_is_cut_off_or_damaged_is_no_packet() {
        let (from, to) = ("1.2.3.4:5".parse().unwrap(), "6.7.8.9:10".parse().unwrap());
        let bytes = packet(from, to, (1, 2), ACK, &[1, 1, 1, 1], b"xyz");
        for end in 0..44 {
            assert_eq!(Packet::parse(&bytes[..end]), None, "{end}");
        }
        assert_eq!(Packet::parse(&bytes[..45]).unwrap().payload, b"x");
        for (at, value) in [(0, 0x65), (9, 17), (32, 0xf0)] {
            let mut other = bytes.clone();
            other[at] = value;
            assert_eq!(Packet::parse(&other), None, "{at}");
        }
        // Options whose lengths lead nowhere end there.
        for options in [[8, 0, 0, 0], [8, 1, 0, 0], [8, 200, 0, 0]] {
            let bytes = packet(from, to, (1, 2), SYN, &options, b"");
            assert_eq!(Packet::parse(&bytes).unwrap().options, Options::default());
        }
    }
}
