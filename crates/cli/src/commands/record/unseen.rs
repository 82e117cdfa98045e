//! Programs of the service into which nothing could be loaded.
//!
//! What `record` is to start is looked at before it is started. A script may start another program,
//! and then nothing of that one would be recorded, and nobody would say so. Those that listen are
//! told of.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use hindcast_exec::preflight::{self, Refused};
use hindcast_pg::secret;

/// So many processes are looked at.
const PROCESSES: usize = 10_000;
/// Of the time of a processor, one part in so many is for looking.
const SHARE: u32 = 1_000;

#[derive(Default)]
pub struct Unseen {
    looked: HashSet<(u32, PathBuf)>,
    silent: Vec<(u32, Refused)>,
    told: Vec<Program>,
    /// Not looked at before.
    next: Option<Instant>,
}

/// One that listens.
pub struct Program {
    pub port: u16,
    pub why: Refused,
}

impl Program {
    /// What the end of a recording says.
    pub fn remark(&self) -> String {
        let Self { port, why } = self;
        format!("nothing was seen of a program that listened on port {port}: {why}")
    }
}

impl Unseen {
    /// Looks at this process and all that descend from it. Returns those that are to be told of.
    pub fn look(&mut self, service: u32) -> &[Program] {
        let began = Instant::now();
        let known = self.told.len();
        if self.next.is_some_and(|next| began < next) {
            return &[];
        }
        for process in family(service) {
            let Ok(path) = fs::read_link(format!("/proc/{process}/exe")) else {
                continue;
            };
            if self.looked.insert((process, path.clone()))
                && let Some(why) = why_not(&path)
            {
                self.silent.push((process, why));
            }
        }
        for (process, why) in std::mem::take(&mut self.silent) {
            match port_of(process) {
                Some(port) => self.told.push(Program { port, why }),
                None => self.silent.push((process, why)),
            }
        }
        self.next = Some(Instant::now() + began.elapsed() * SHARE);
        &self.told[known..]
    }

    pub fn told(&self) -> &[Program] {
        &self.told
    }
}

/// What to do where nothing can be loaded. `port`: where the service listens, if it is known.
pub fn hint(trace: &str, postgres: &str, port: Option<u16>) -> String {
    let app = port.map_or("PORT".to_owned(), |port| port.to_string());
    let listen = if port == Some(8080) { 8081 } else { 8080 };
    format!(
        "record it from outside, by a proxy in front of it and one behind it: start it by itself, with 127.0.0.1:6432 \
         for the host and port of its database, and beside it `hindcast record --trace {trace} --base template --listen \
         :{listen} --app http://127.0.0.1:{app} --pg-listen :6432 --postgres {}`. Clients connect to port {listen}",
        secret::masked(postgres)
    )
}

/// A program in Go is easily made one that can be loaded into.
pub fn rather(why: &Refused, otherwise: String) -> String {
    match why {
        Refused::StaticGo(_) => format!("{}; or {otherwise}", why.hint()),
        _ => otherwise,
    }
}

fn why_not(path: &Path) -> Option<Refused> {
    let refused = preflight::loadable(path).err();
    refused.filter(|why| !matches!(why, Refused::Unreadable(_)))
}

/// A process and its descendants.
fn family(first: u32) -> Vec<u32> {
    let mut all = vec![first];
    let mut next = 0;
    while let Some(&process) = all.get(next).filter(|_| next < PROCESSES) {
        let threads = fs::read_dir(format!("/proc/{process}/task"));
        for thread in threads.into_iter().flatten().flatten() {
            let children = fs::read_to_string(thread.path().join("children"));
            let children = children.unwrap_or_default();
            all.extend(children.split_whitespace().flat_map(str::parse::<u32>));
        }
        next += 1;
    }
    all
}

/// A port on which the process listens.
fn port_of(process: u32) -> Option<u16> {
    let table = |name| fs::read_to_string(format!("/proc/{process}/net/{name}"));
    let listening: Vec<_> = ["tcp", "tcp6"]
        .into_iter()
        .flat_map(|name| listening(&table(name).unwrap_or_default()))
        .collect();
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).ok()?;
    descriptors.flatten().find_map(|descriptor| {
        let link = fs::read_link(descriptor.path()).ok()?;
        let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        let of = listening.iter().find(|(_, of)| of == inode);
        of.map(|&(port, _)| port)
    })
}

/// Ports and inodes of sockets that listen, in one of the kernel's tables.
fn listening(table: &str) -> Vec<(u16, String)> {
    const LISTENS: &str = "0A";
    let socket = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let port = fields.next()?.rsplit(':').next()?;
        let is_it = fields.nth(1)? == LISTENS;
        let inode = fields.nth(5)?.to_owned();
        is_it.then_some((u16::from_str_radix(port, 16).ok()?, inode))
    };
    table.lines().filter_map(socket).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_socket_that_listens_is_found_by_its_process() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let table = fs::read_to_string("/proc/self/net/tcp").unwrap();
        assert!(listening(&table).iter().any(|(of, _)| *of == port));
        assert!(port_of(std::process::id()).is_some());
        assert!(family(1).contains(&1));
    }

    #[test]
    fn a_hint_says_what_to_type() {
        expect!["record it from outside, by a proxy in front of it and one behind it: start it by itself, with 127.0.0.1:6432 for the host and port of its database, and beside it `hindcast record --trace ./trace --base template --listen :8080 --app http://127.0.0.1:8000 --pg-listen :6432 --postgres postgres://me@db/shop`. Clients connect to port 8080"]
            .assert_eq(&hint("./trace", "postgres://me@db/shop", Some(8000)));
        assert!(hint("t", "postgres://db/x", Some(8080)).contains("--listen :8081"));
    }
}
