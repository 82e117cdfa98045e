//! Where a service's connections to its database get to instead, and which ones do.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use hindcast_pg::{Address as Place, DatabaseUrl, ListenAddress};
use hindcast_taplog::board::{ADDRESSES, Address, Redirect};

use crate::listen::{BindError, Listener, Listeners};

/// Folders in which servers have their sockets: what a client takes that is given no host.
const SOCKET_FOLDERS: [&str; 3] = ["/var/run/postgresql", "/run/postgresql", "/tmp"];

/// One for each family of addresses.
pub struct Gates {
    pub(crate) listeners: Vec<Listener>,
    /// Has the socket.
    folder: tempfile::TempDir,
}

impl Gates {
    /// On ports of this machine that are free, and in a folder that any user may enter: a service
    /// may run as another one.
    pub async fn open() -> Result<Self, BindError> {
        let folder = socket_folder().map_err(|source| BindError::Other {
            address: ListenAddress::Unix(std::env::temp_dir()),
            source,
        })?;
        let v6 = ListenAddress::Tcp {
            host: Ipv6Addr::LOCALHOST.to_string(),
            port: 0,
        };
        let socket = ListenAddress::Unix(folder.path().join("gate"));
        let mut listeners = vec![
            Listener::bind(&ListenAddress::on_this_machine(0)).await?,
            Listener::bind(&socket).await?,
        ];
        // A machine may do without.
        listeners.extend(Listener::bind(&v6).await);
        Ok(Self { listeners, folder })
    }

    /// The folder of the socket; it goes when this goes.
    pub fn into_parts(self) -> (Listeners, tempfile::TempDir) {
        (Listeners(self.listeners), self.folder)
    }

    fn addresses(&self) -> impl Iterator<Item = Address> {
        let gates = self.listeners.iter();
        gates.filter_map(|gate| system_address(&gate.address()))
    }
}

/// What leads to the database, leads to the gates, if there are any. Names are looked up.
pub fn redirect(database: &DatabaseUrl, gates: Option<&Gates>) -> Redirect {
    let mut redirect = Redirect::NONE;
    let from = places(database);
    let places = redirect.from.iter_mut().zip(from.iter().take(ADDRESSES));
    places.for_each(|(to, from)| *to = *from);
    let gates = gates.into_iter().flat_map(Gates::addresses);
    let places = redirect.to.iter_mut().zip(gates);
    places.for_each(|(to, gate)| *to = gate);
    redirect
}

/// A folder for sockets that any user may enter; it goes when this goes.
pub fn socket_folder() -> std::io::Result<tempfile::TempDir> {
    let folder = tempfile::Builder::new().prefix("hindcast-").tempdir()?;
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o711))?;
    Ok(folder)
}

/// Of an address that is listened on, as the system has it; `None` for a name.
pub fn system_address(address: &ListenAddress) -> Option<Address> {
    match address {
        ListenAddress::Tcp { host, port } => Some(inet(SocketAddr::new(host.parse().ok()?, *port))),
        ListenAddress::Unix(path) => unix(path),
    }
}

/// An address as the tap tells it: `127.0.0.1:6379`, `[::1]:80`, `unix:/run/x.sock`.
pub fn address_of(text: &str) -> Option<Address> {
    match text.strip_prefix("unix:") {
        Some(path) => unix(Path::new(path)).filter(|_| path.starts_with('/')),
        None => text.parse().ok().map(inet),
    }
}

/// All addresses under which a service may know the database. A server of this machine is known by
/// its socket and by the machine's own addresses.
fn places(database: &DatabaseUrl) -> Vec<Address> {
    let mut places = Vec::new();
    let mut add = |place: Address| {
        if !places.contains(&place) {
            places.push(place);
        }
    };
    for place in &database.addresses {
        let port = match place {
            Place::Unix(socket) => {
                unix(socket).into_iter().for_each(&mut add);
                port_of(socket)
            }
            Place::Tcp { host, port } => {
                let found = (host.as_str(), *port).to_socket_addrs();
                let found: Vec<_> = found.into_iter().flatten().collect();
                found.iter().copied().flat_map(forms).for_each(&mut add);
                let local = found.iter().any(|address| address.ip().is_loopback());
                local.then_some(*port)
            }
        };
        let Some(port) = port else { continue };
        let own = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        let own = own.into_iter().map(|ip| SocketAddr::new(ip, port));
        own.flat_map(forms).for_each(&mut add);
        let name = format!(".s.PGSQL.{port}");
        let sockets = SOCKET_FOLDERS.map(|folder| Path::new(folder).join(&name));
        sockets
            .iter()
            .filter_map(|path| unix(path))
            .for_each(&mut add);
    }
    places
}

fn port_of(socket: &Path) -> Option<u16> {
    let name = socket.file_name()?.to_str()?;
    name.strip_prefix(".s.PGSQL.")?.parse().ok()
}

/// An address of IPv4 is reached by sockets of IPv6, too.
fn forms(address: SocketAddr) -> Vec<Address> {
    let mapped = match address {
        SocketAddr::V4(v4) => {
            let ip = v4.ip().to_ipv6_mapped();
            Some(inet(SocketAddr::new(ip.into(), v4.port())))
        }
        SocketAddr::V6(_) => None,
    };
    [Some(inet(address)), mapped]
        .into_iter()
        .flatten()
        .collect()
}

/// As the system has it.
fn inet(address: SocketAddr) -> Address {
    let mut bytes = Vec::with_capacity(28);
    match address {
        SocketAddr::V4(v4) => {
            bytes.extend_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            bytes.extend_from_slice(&v4.port().to_be_bytes());
            bytes.extend_from_slice(&v4.ip().octets());
            bytes.extend_from_slice(&[0; 8]);
        }
        SocketAddr::V6(v6) => {
            bytes.extend_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            bytes.extend_from_slice(&v6.port().to_be_bytes());
            bytes.extend_from_slice(&[0; 4]);
            bytes.extend_from_slice(&v6.ip().octets());
            bytes.extend_from_slice(&v6.scope_id().to_ne_bytes());
        }
    }
    Address::new(&bytes).expect("no such address is longer than a path")
}

/// `None` if the path is longer than a socket's can be.
fn unix(path: &Path) -> Option<Address> {
    let mut bytes = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
    bytes.extend_from_slice(path.as_os_str().as_bytes());
    bytes.push(0);
    (bytes.len() <= size_of::<libc::sockaddr_un>()).then_some(())?;
    Address::new(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(url: &str) -> Vec<Address> {
        places(&url.parse().unwrap())
    }

    fn has(known: &[Address], address: &str) -> bool {
        let wanted = match address.strip_prefix("unix:") {
            Some(path) => unix(Path::new(path)).unwrap(),
            None => inet(address.parse().unwrap()),
        };
        known.contains(&wanted)
    }

    #[test]
    fn a_server_of_this_machine_is_known_by_all_its_addresses() {
        for url in [
            "postgres://u@127.0.0.1:5433/d",
            "postgres://u@%2Fvar%2Frun%2Fpostgresql:5433/d",
        ] {
            let known = known(url);
            for address in [
                "127.0.0.1:5433",
                "[::1]:5433",
                "[::ffff:127.0.0.1]:5433",
                "unix:/var/run/postgresql/.s.PGSQL.5433",
                "unix:/tmp/.s.PGSQL.5433",
            ] {
                assert!(has(&known, address), "{url}: {address}");
            }
            assert!(known.len() <= ADDRESSES && !has(&known, "127.0.0.1:5432"));
        }
    }

    #[test]
    fn another_machine_is_known_by_its_own_address_only() {
        let known = known("postgres://u@192.0.2.7:5432/d");
        assert!(has(&known, "192.0.2.7:5432") && has(&known, "[::ffff:192.0.2.7]:5432"));
        assert_eq!(known.len(), 2);
    }

    #[tokio::test]
    async fn there_is_a_gate_for_each_family_and_they_are_gone_afterwards() {
        let gates = Gates::open().await.unwrap();
        let database = "postgres://u@127.0.0.1:5433/d".parse().unwrap();
        let redirect = redirect(&database, Some(&gates));
        let families: Vec<_> = redirect.to.iter().map(Address::family).collect();
        assert!(families.contains(&(libc::AF_INET as u16)));
        assert!(families.contains(&(libc::AF_UNIX as u16)));
        let folder = gates.folder.path().to_owned();
        assert!(folder.join("gate").exists());
        drop(gates);
        assert!(!folder.exists());
    }
}
