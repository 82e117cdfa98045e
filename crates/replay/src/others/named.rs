//! What a service listened on when requests came: as the recording says, or by the port by which
//! clients named it (`Host: shop:8000`), where it says nothing.
//!
//! A service may listen elsewhere as well, before it does there: for a page of metrics, or for its
//! own processes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;

use hindcast_gateway::inside::CgiProtocol;
use hindcast_trace::{Request, Response};

use crate::place::Asked;

#[derive(Default)]
pub struct Named {
    /// How many requests came to each that are sent again.
    came_to: BTreeMap<Asked, u64>,
    /// How many requests came from each.
    pub came_from: HashMap<SocketAddr, u32>,
    /// The processes to which requests came.
    pub came_by: HashSet<u64>,
    /// How many requests named each.
    ports: BTreeMap<u16, u64>,
    /// And none.
    without: u64,
}

impl Named {
    /// `is_own`: the instance that is replayed had it, and not another one.
    pub fn add(&mut self, request: &Request, is_own: bool) {
        self.count(port(request));
        let is_sent = !matches!(request.response, Response::Unrecorded { .. });
        let came_to = request.came_to.as_deref().filter(|_| is_own && is_sent);
        if let Some(asked) = came_to.and_then(Asked::recorded) {
            *self.came_to.entry(asked).or_default() += 1;
        }
        if let Some(client) = client(request) {
            *self.came_from.entry(client).or_default() += 1;
        }
        self.came_by.extend(process(request));
    }

    /// All that requests came to, that of most first.
    pub fn came_to(&self) -> Vec<Asked> {
        let mut all: Vec<_> = self.came_to.iter().collect();
        all.sort_by_key(|&(_, &times)| std::cmp::Reverse(times));
        all.into_iter().map(|(asked, _)| asked.clone()).collect()
    }

    fn count(&mut self, port: Option<u16>) {
        match port {
            Some(port) => *self.ports.entry(port).or_default() += 1,
            None => self.without += 1,
        }
    }

    /// That of most requests, if they name one.
    pub fn port(&self) -> Option<u16> {
        let (&port, &times) = self.ports.iter().max_by_key(|&(_, times)| times)?;
        (times > self.without).then_some(port)
    }
}

/// Who sent it, if the recording says so.
pub fn client(request: &Request) -> Option<SocketAddr> {
    request.came_from.as_deref()?.parse().ok()
}

/// The process that had accepted its connection, apart from those of other recorders.
pub fn process(request: &Request) -> Option<u64> {
    let recorder = u64::from(request.id.recorder());
    Some(recorder << 32 | u64::from(request.came_by?))
}

/// `None`: it names none, or came by a web server, whose port is another one.
fn port(request: &Request) -> Option<u16> {
    if CgiProtocol::of(request).is_some() {
        return None;
    }
    let mut headers = request.headers.iter();
    let (_, host) = headers.find(|(name, _)| name.eq_ignore_ascii_case("host"))?;
    port_of(std::str::from_utf8(host).ok()?)
}

fn port_of(host: &str) -> Option<u16> {
    host.rsplit_once(':')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_named_by_the_port_of_most_requests() {
        let of = |hosts: &[&str]| {
            let mut named = Named::default();
            hosts.iter().for_each(|host| named.count(port_of(host)));
            named.port()
        };
        assert_eq!(of(&["a:8000", "[::1]:8000", "a:9000"]), Some(8000));
        // Behind a web server they do not.
        assert_eq!(of(&["a", "b", "a:8000"]), None);
        assert_eq!(of(&["[::1]"]), None);
    }
}
