//! What the kernel has of each connection that the program has not read.

use std::net::{Ipv4Addr, SocketAddrV4};

/// A client, the service's port, and bytes.
pub type Unread = (SocketAddrV4, u16, u64);

/// Of all connections of an address of this machine.
pub fn of(own: Ipv4Addr) -> Vec<Unread> {
    let text = std::fs::read_to_string("/proc/self/net/tcp").unwrap_or_default();
    text.lines().filter_map(|line| unread(line, own)).collect()
}

/// A line of `/proc/net/tcp`: `0: 0A00000A:2BCB 0200000A:0FA0 01 00000000:00000005 …`, where the
/// second number after the state is what was not read.
fn unread(line: &str, own: Ipv4Addr) -> Option<Unread> {
    let mut words = line.split_whitespace().skip(1);
    let ends = |word: &str| -> Option<(Ipv4Addr, u16)> {
        let (ip, port) = word.split_once(':')?;
        let ip = u32::from_str_radix(ip, 16).ok()?;
        let port = u16::from_str_radix(port, 16).ok()?;
        Some((Ipv4Addr::from(ip.to_ne_bytes()), port))
    };
    let (local, port) = ends(words.next()?)?;
    let (client, client_port) = ends(words.next()?)?;
    let state = words.next()?;
    let (_, unread) = words.next()?.split_once(':')?;
    let is_listening = state == "0A";
    (local == own && !is_listening).then_some(())?;
    let unread = u64::from_str_radix(unread, 16).ok()?;
    Some((SocketAddrV4::new(client, client_port), port, unread))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unread_is_in_the_kernels_table() {
        let line = "   1: 0A00000A:2BCB 0200000A:0FA0 01 00000000:0000002A 00:00000000 00000000     0        0 1 1";
        let own = Ipv4Addr::new(10, 0, 0, 10);
        let client = "10.0.0.2:4000".parse().unwrap();
        assert_eq!(unread(line, own), Some((client, 11211, 42)));
        assert_eq!(unread(line, Ipv4Addr::LOCALHOST), None);
        assert_eq!(unread("  sl  local_address rem_address   st", own), None);
        let listening = line.replace(" 01 ", " 0A ");
        assert_eq!(unread(&listening, own), None);
    }
}
