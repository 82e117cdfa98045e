//! Three machines on one: network namespaces with a switch between them.
//!
//! ```text
//!   client 10.9.0.1 ──┐
//!   primary 10.9.0.2 ─┤ switch
//!   backup 10.9.0.3 ──┘
//! ```

use std::ffi::CString;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// An end of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Client,
    Primary,
    Backup,
}

impl End {
    const ALL: [End; 3] = [End::Client, End::Primary, End::Backup];

    /// Its address: that of the service is 10.9.0.10.
    pub fn ip(self) -> &'static str {
        match self {
            End::Client => "10.9.0.1",
            End::Primary => "10.9.0.2",
            End::Backup => "10.9.0.3",
        }
    }

    /// The switch's end of its cable.
    fn port(self) -> &'static str {
        match self {
            End::Client => "to-client",
            End::Primary => "to-primary",
            End::Backup => "to-backup",
        }
    }
}

/// The three and their switch. Dropping it removes them, with every process that is in one.
pub struct Network {
    name: String,
}

fn ip(arguments: &str) {
    let output = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .expect("there is ip (install it with scripts/setup test)");
    assert!(
        output.status.success(),
        "ip {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

impl Network {
    /// Whether they can be made: that takes root. Says so if not.
    pub fn is_possible() -> bool {
        // SAFETY: takes nothing.
        let is_root = unsafe { libc::geteuid() } == 0;
        if !is_root {
            eprintln!("skipped: network namespaces take root");
        }
        is_root
    }

    /// # Panics
    /// If namespaces cannot be made.
    #[allow(
        clippy::new_without_default,
        reason = "it makes something outside of the process"
    )]
    pub fn new() -> Network {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("hc{}n{number}", std::process::id());
        let network = Network { name };
        let switch = network.switch();
        ip(&format!("netns add {switch}"));
        ip(&format!("-n {switch} link add br0 type bridge"));
        ip(&format!("-n {switch} link set br0 up"));
        for end in End::ALL {
            let (space, port) = (network.space(end), end.port());
            ip(&format!("netns add {space}"));
            ip(&format!("-n {space} link set lo up"));
            ip(&format!(
                "link add {port} netns {switch} type veth peer name eth0 netns {space}"
            ));
            ip(&format!("-n {switch} link set {port} master br0 up"));
            ip(&format!("-n {space} address add {}/24 dev eth0", end.ip()));
            ip(&format!("-n {space} link set eth0 up"));
        }
        network
    }

    fn switch(&self) -> String {
        format!("{}s", self.name)
    }

    fn space(&self, end: End) -> String {
        format!("{}-{}", self.name, end.port())
    }

    /// A program at this end.
    pub fn command(&self, end: End, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.space(end)])
            .arg(program.as_ref());
        command
    }

    /// For the thread of a client: what it connects from here on is at this end.
    pub fn enter(&self, end: End) -> impl Fn() + Clone + Send + 'static {
        let path = CString::new(format!("/run/netns/{}", self.space(end))).expect("no NUL in it");
        move || {
            // SAFETY: a path; the descriptor is closed again.
            let entered = unsafe {
                let space = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
                let entered = libc::setns(space, libc::CLONE_NEWNET);
                libc::close(space);
                entered
            };
            assert_eq!(entered, 0, "{path:?}: {}", std::io::Error::last_os_error());
        }
    }

    /// Pulls the plug.
    pub fn cut(&self, end: End) {
        ip(&format!(
            "-n {} link set {} down",
            self.switch(),
            end.port()
        ));
    }

    pub fn heal(&self, end: End) {
        ip(&format!("-n {} link set {} up", self.switch(), end.port()));
    }

    /// Whether this end has an address.
    pub fn has(&self, end: End, address: &str) -> bool {
        let output = self
            .command(end, "ip")
            .args(["-o", "-4", "address", "show"])
            .output()
            .expect("there is ip");
        String::from_utf8_lossy(&output.stdout).contains(&format!(" {address}/"))
    }

    /// The rules for packets that are left at this end.
    pub fn rules(&self, end: End) -> Vec<String> {
        let output = self
            .command(end, "iptables")
            .args(["-t", "mangle", "-S"])
            .output()
            .expect("there is iptables");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines()
            .filter(|line| line.starts_with("-A"))
            .map(str::to_owned)
            .collect()
    }

    /// Programs that run at this end.
    pub fn processes(&self, end: End) -> Vec<u32> {
        let output = Command::new("ip")
            .args(["netns", "pids", &self.space(end)])
            .output()
            .expect("there is ip");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for end in End::ALL {
            for pid in self.processes(end) {
                // SAFETY: it is in a namespace of ours.
                unsafe { libc::kill(pid as i32, libc::SIGKILL) };
            }
        }
        for space in End::ALL
            .map(|end| self.space(end))
            .iter()
            .chain([&self.switch()])
        {
            let _ = Command::new("ip").args(["netns", "del", space]).output();
        }
    }
}
