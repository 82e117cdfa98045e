//! Which address a client had originally, for a service to see in a replay.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Line, Lines, PORTS, THERE, WAYS};

/// By the place of a connection between two ports.
#[repr(C)]
pub(super) struct Shown([Client; PORTS * WAYS]);

/// An address, of IPv4 as mapped into IPv6.
#[repr(C)]
struct Client {
    high: AtomicU64,
    low: AtomicU64,
    /// [`THERE`], the port that the connection leads to, and the client's own. Written last.
    ports: AtomicU64,
}

impl Shown {
    fn of(&self, line: Line) -> Option<&Client> {
        self.0.get(Lines::place(line))
    }

    pub fn put(&self, line: Line, client: SocketAddr) {
        let Some(at) = self.of(line) else { return };
        let ip = match client.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let ip = ip.to_bits();
        at.ports.store(0, Ordering::SeqCst);
        at.high.store((ip >> 64) as u64, Ordering::SeqCst);
        at.low.store(ip as u64, Ordering::SeqCst);
        let ports = THERE | u64::from(line.to) << 16 | u64::from(client.port());
        at.ports.store(ports, Ordering::SeqCst);
    }

    pub fn get(&self, line: Line) -> Option<SocketAddr> {
        let at = self.of(line)?;
        let ports = at.ports.load(Ordering::SeqCst);
        let (high, low) = (&at.high, &at.low);
        let [high, low] = [high, low].map(|half| u128::from(half.load(Ordering::SeqCst)));
        let is_there = ports & THERE != 0 && (ports >> 16) as u16 == line.to;
        if !is_there || at.ports.load(Ordering::SeqCst) != ports {
            return None;
        }
        let ip = Ipv6Addr::from_bits(high << 64 | low);
        Some(SocketAddr::new(ip.to_canonical(), ports as u16))
    }
}
