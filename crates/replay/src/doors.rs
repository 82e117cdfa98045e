//! By which listener of the service each request is sent: by the one that it came to.

use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::collections::BTreeMap;
use std::time::Duration;

use crate::connect::{Connector, connector};
use crate::pins::Pins;
use crate::place::{Asked, Place};

pub type Http = Client<HttpsConnector<Connector>, Full<Bytes>>;

/// One listener, and how requests get there.
#[derive(Clone)]
pub struct Door {
    pub place: Place,
    pub http: Http,
    /// Uses no connection twice.
    pub anew: Http,
}

/// All listeners.
pub struct Doors {
    /// Of what came to no other one, or of which that is not known.
    most: Door,
    also: BTreeMap<Asked, Door>,
}

impl Door {
    fn new(place: Place, pins: Option<&Pins>) -> Self {
        let connector = || connector(&place, pins);
        Self {
            http: Client::builder(TokioExecutor::new())
                // Shorter than what any common server allows, so that no request goes out on a
                // connection that is about to close.
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(Duration::from_secs(1))
                .build(connector()),
            anew: Client::builder(TokioExecutor::new())
                .pool_max_idle_per_host(0)
                .build(connector()),
            place,
        }
    }
}

impl Doors {
    /// `pins`: of a service that is to see who its clients were.
    pub fn new(service: &Place, also: Vec<(Asked, Place)>, pins: Option<&Pins>) -> Self {
        let door = |(asked, place)| (asked, Door::new(place, pins));
        Self {
            most: Door::new(service.clone(), pins),
            also: also.into_iter().map(door).collect(),
        }
    }

    /// Of a request that came to this address.
    pub fn of(&self, came_to: Option<&str>) -> &Door {
        let asked = came_to.filter(|_| !self.also.is_empty());
        let asked = asked.and_then(Asked::recorded);
        let also = asked.and_then(|asked| self.also.get(&asked));
        also.unwrap_or(&self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_goes_to_the_listener_that_it_came_to() {
        let tcp = |port: u16| Place::Tcp(format!("http://127.0.0.1:{port}").parse().unwrap());
        let also = vec![
            (Asked::Port(9000), tcp(2)),
            (
                Asked::Path("/run/a".to_owned()),
                Place::Unix("00001".to_owned()),
            ),
        ];
        let doors = Doors::new(&tcp(1), also, None);
        let place = |came_to: Option<&str>| doors.of(came_to).place.to_string();
        let (most, metrics) = (tcp(1).to_string(), tcp(2).to_string());
        assert_eq!(place(None), most);
        assert_eq!(place(Some("127.0.0.1:8000")), most);
        assert_eq!(place(Some("[::ffff:127.0.0.1]:9000")), metrics);
        assert_eq!(place(Some("unix:/run/a")), "the Unix socket @00001");
    }
}
