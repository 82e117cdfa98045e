//! The address that clients talk to, and the rules that queue or keep out what goes through it, by
//! the system's own commands `ip` and `iptables`.

use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::process::Command;
use std::str::FromStr;

use crate::ProtectError;

/// An address with the length of its network, and the device that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub ip: Ipv4Addr,
    pub prefix: u8,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("{text} is not an IPv4 address with a prefix, as in 10.0.0.10/24");
        let (ip, prefix) = text.split_once('/').ok_or_else(wrong)?;
        let prefix = prefix.parse().ok().filter(|prefix| *prefix <= 32);
        Ok(Address {
            ip: ip.parse().map_err(|_| wrong())?,
            prefix: prefix.ok_or_else(wrong)?,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.ip, self.prefix)
    }
}

fn run(program: &'static str, arguments: &[&str]) -> Result<String, ProtectError> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => ProtectError::NoCommand(program),
        _ => ProtectError::System {
            what: program,
            source,
        },
    })?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(ProtectError::Command {
            command: format!("{program} {}", arguments.join(" ")),
            said: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        }),
    }
}

/// The device through which a local address is reached.
pub fn device_of(local: Ipv4Addr) -> Result<String, ProtectError> {
    let wanted = format!("{local}/");
    // `2: eth0    inet 10.0.0.2/24 brd …`
    let all = run("ip", &["-o", "-4", "address", "show"])?;
    let found = all.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let device = words.next()?;
        words
            .any(|word| word.starts_with(&wanted))
            .then(|| device.to_owned())
    });
    found.ok_or(ProtectError::NoDevice(local))
}

/// Whether this machine has the address.
pub fn is_here(address: &Address) -> Result<bool, ProtectError> {
    let wanted = format!(" {}/", address.ip);
    Ok(run("ip", &["-o", "-4", "address", "show"])?.contains(&wanted))
}

/// Gives this machine the address, if it has not got it.
pub fn take(address: &Address, device: &str) -> Result<(), ProtectError> {
    if is_here(address)? {
        return Ok(());
    }
    run(
        "ip",
        &["address", "add", &address.to_string(), "dev", device],
    )
    .map(drop)
}

/// Takes the address from this machine. One that is not there is none.
pub fn give_up(address: &Address, device: &str) {
    let _ = run(
        "ip",
        &["address", "del", &address.to_string(), "dev", device],
    );
}

/// What is done with packets of the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// What goes to clients waits in this queue.
    Queue(u16),
    /// Nothing comes in: a connection that is not there yet would be answered with a reset.
    KeepOut,
    /// No new connections come in: where nobody listens yet they would be refused.
    KeepOutNew,
    /// Nothing goes out.
    KeepIn,
}

impl Rule {
    fn line(self, address: &Address) -> String {
        let ip = address.ip;
        match self {
            Rule::Queue(number) => {
                format!("OUTPUT -s {ip} -p tcp -j NFQUEUE --queue-num {number}")
            }
            Rule::KeepOut => format!("INPUT -d {ip} -p tcp -j DROP"),
            Rule::KeepOutNew => format!("INPUT -d {ip} -p tcp -j DROP --syn"),
            Rule::KeepIn => format!("OUTPUT -s {ip} -p tcp -j DROP"),
        }
    }

    fn change(self, action: &str, address: &Address) -> Result<(), ProtectError> {
        let mut arguments = vec!["-w", "-t", "mangle", action];
        let line = self.line(address);
        arguments.extend(line.split_whitespace());
        run("iptables", &arguments).map(drop)
    }

    pub fn set(self, address: &Address) -> Result<(), ProtectError> {
        self.change("-I", address)
    }

    pub fn remove(self, address: &Address) -> Result<(), ProtectError> {
        self.change("-D", address)
    }
}

/// Removes what an earlier run that was killed with all its processes has left.
pub fn remove_left_rules(address: &Address) -> Result<(), ProtectError> {
    let all = run("iptables", &["-w", "-t", "mangle", "-S"])?;
    let ours = [
        format!("-s {}/32 ", address.ip),
        format!("-d {}/32 ", address.ip),
    ];
    for line in all.lines() {
        let target = line.contains("-j NFQUEUE") || line.contains("-j DROP");
        if let Some(rule) = line.strip_prefix("-A ")
            && target
            && ours.iter().any(|ours| line.contains(ours))
        {
            let mut arguments = vec!["-w", "-t", "mangle", "-D"];
            arguments.extend(rule.split_whitespace());
            run("iptables", &arguments)?;
        }
    }
    Ok(())
}

/// Ends what the kernel still has of connections of the address, if the program once ran on this
/// machine: a connection that comes back would find its place taken. Nobody is told: the clients'
/// ends are with the machine on which the program runs now.
pub fn forget_connections(address: &Address) -> Result<(), ProtectError> {
    Rule::KeepIn.set(address)?;
    let ended = run("ss", &["-K", "-t", "-a", "src", &address.ip.to_string()]);
    Rule::KeepIn.remove(address)?;
    ended.map(drop)
}

/// Tells the network where the address is now (gratuitous ARP, request and reply).
pub fn announce(address: &Address, device: &str) -> Result<(), ProtectError> {
    let failed = |source| ProtectError::System {
        what: "announcing the address",
        source,
    };
    let read = |name: &str| std::fs::read_to_string(format!("/sys/class/net/{device}/{name}"));
    let index: i32 = read("ifindex").map_err(failed)?.trim().parse().unwrap_or(0);
    let text = read("address").map_err(failed)?;
    let bytes: Vec<u8> = text
        .trim()
        .split(':')
        .filter_map(|byte| u8::from_str_radix(byte, 16).ok())
        .collect();
    let Ok(hardware) = <[u8; 6]>::try_from(bytes) else {
        // A device without such addresses needs no announcement.
        return Ok(());
    };
    // SAFETY: a fresh descriptor; a message and an address of this function.
    unsafe {
        let protocol = (libc::ETH_P_ARP as u16).to_be();
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        let socket = libc::socket(libc::AF_PACKET, kind, i32::from(protocol));
        if socket < 0 {
            return Err(failed(io::Error::last_os_error()));
        }
        let socket = OwnedFd::from_raw_fd(socket);
        let mut to: libc::sockaddr_ll = std::mem::zeroed();
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_protocol = protocol;
        to.sll_ifindex = index;
        to.sll_halen = 6;
        to.sll_addr[..6].fill(0xff);
        for operation in [1u16, 2] {
            let message = arp(operation, hardware, address.ip);
            libc::sendto(
                socket.as_raw_fd(),
                message.as_ptr().cast(),
                message.len(),
                0,
                (&raw const to).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            );
        }
    }
    Ok(())
}

fn arp(operation: u16, hardware: [u8; 6], ip: Ipv4Addr) -> Vec<u8> {
    let mut made = vec![0, 1, 8, 0, 6, 4];
    made.extend(operation.to_be_bytes());
    made.extend(hardware);
    made.extend(ip.octets());
    made.extend([0xff; 6]);
    made.extend(ip.octets());
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_prefix() {
        let address: Address = "10.0.0.10/24".parse().unwrap();
        assert_eq!(
            (address.ip, address.prefix),
            (Ipv4Addr::new(10, 0, 0, 10), 24)
        );
        assert_eq!(address.to_string(), "10.0.0.10/24");
        for wrong in ["10.0.0.10", "10.0.0.10/33", "10.0.0/8", "::1/64", "/24", ""] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn rules_are_for_the_address_alone() {
        let address = "10.0.0.10/24".parse().unwrap();
        assert_eq!(
            Rule::Queue(7).line(&address),
            "OUTPUT -s 10.0.0.10 -p tcp -j NFQUEUE --queue-num 7"
        );
    }
}
