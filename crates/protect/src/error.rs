//! Why a program is not protected.

use std::io;
use std::net::Ipv4Addr;

use hindcast_exec::error::ExecError;

#[derive(Debug, thiserror::Error)]
pub enum ProtectError {
    #[error(transparent)]
    Exec(#[from] ExecError),
    #[error("{what} failed")]
    System {
        what: &'static str,
        source: io::Error,
    },
    #[error("{0} is not there")]
    NoCommand(&'static str),
    #[error("{command}: {said}")]
    Command { command: String, said: String },
    #[error("no device of this machine has {0}")]
    NoDevice(Ipv4Addr),
    #[error("packets cannot be held")]
    NoQueue(#[source] io::Error),
    #[error("the backup {to} cannot be reached")]
    Unreachable { to: String, source: io::Error },
    #[error("{at} cannot be asked")]
    Silent { at: String, source: io::Error },
    #[error("{at} says: {why}")]
    NotAttached {
        at: String,
        why: String,
        hint: String,
    },
    #[error("the backup {to} speaks another version")]
    OtherVersion { to: String },
    #[error("the backup {to} cannot follow: {why}")]
    Refused {
        to: String,
        why: String,
        hint: String,
    },
    #[error("the backup {to} has ended the connection at once: it has another key, or was ended")]
    OtherKey { to: String },
    #[error("{} is no key of hindcast protect", .0.display())]
    NoKey(std::path::PathBuf),
    #[error("{0} cannot be listened on")]
    Listen(String, #[source] io::Error),
    #[error("the backup has another address: {theirs}, this is {ours}")]
    OtherAddress { ours: String, theirs: String },
    #[error("the checkpoint was taken on another kernel or processor, and the log before is gone")]
    OtherCheckpoint,
}

impl ProtectError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Exec(error) => error.hint().to_owned(),
            Self::NoCommand("iptables") => {
                "install it (apt install iptables): packets are held by its NFQUEUE".to_owned()
            }
            Self::NoCommand(_) => "install it (apt install iproute2)".to_owned(),
            Self::Command { said, .. } if said.contains("NFQUEUE") => {
                "the kernel lacks NFQUEUE (module xt_NFQUEUE): it is part of every distribution's \
                 kernel, but not of all that clouds and sandboxes run"
                    .to_owned()
            }
            Self::Command { .. } | Self::NoQueue(_) => {
                "run it as root, or with CAP_NET_ADMIN, CAP_NET_RAW and CAP_SYS_PTRACE".to_owned()
            }
            Self::NoDevice(_) => "name the device with --device".to_owned(),
            Self::Unreachable { to, .. } => format!(
                "start it first: hindcast protect backup --listen :{} --address ADDRESS",
                to.rsplit_once(':').map_or(to.as_str(), |(_, port)| port)
            ),
            Self::OtherKey { .. } | Self::NoKey(_) => {
                "make one with `hindcast protect key FILE`, and give both machines the same"
                    .to_owned()
            }
            Self::OtherVersion { .. } => "install the same hindcast on both machines".to_owned(),
            Self::Refused { hint, .. } | Self::NotAttached { hint, .. } => hint.clone(),
            Self::Silent { .. } => {
                "name where `hindcast protect backup` or `hindcast protect run` was told to --listen"
                    .to_owned()
            }
            Self::Listen(..) => "choose another port, or end who has it".to_owned(),
            Self::OtherCheckpoint => {
                "start a backup on a machine like the one on which the program runs".to_owned()
            }
            Self::OtherAddress { .. } => "give both ends the same --address".to_owned(),
            Self::System { .. } => String::new(),
        }
    }
}

/// An error with its causes.
pub(crate) fn in_one_line(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// For `map_err`.
pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> ProtectError {
    move |source| ProtectError::System { what, source }
}
