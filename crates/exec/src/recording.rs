//! `recording.json`: what was run, with what, and where.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use hindcast_execlog::config::{Order, Policy};
use serde::{Deserialize, Serialize};

use crate::launch::{self, Image};
use crate::log;
use crate::watch::Ended;

pub const FILE: &str = "recording.json";

/// A recording as its maker described it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// The version of `hindcast` that made it.
    pub hindcast: String,
    /// [`hindcast_execlog::VERSION`].
    pub log_version: u32,
    /// Identifies the table of functions of the runtime.
    pub functions: String,
    /// What identifies the runtime: another one leaves other room in the address space.
    pub runtime: String,
    pub path: Text,
    pub arguments: Vec<Text>,
    pub environment: Vec<Text>,
    pub folder: Text,
    pub stack_limit: u64,
    pub order: Order,
    pub policy: Policy,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Interface>,
    /// Statuses that repeat are not logged again.
    pub cache: bool,
    /// One thread ran at a time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_at_a_time: bool,
    /// Below which folder files are read again in replay instead of logged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reproduce: Option<Text>,
    /// The program, what loads it, and its libraries: replay needs the same.
    pub files: Vec<LoadedFile>,
    pub machine: Machine,
    /// Seconds since 1970.
    pub began: u64,
    /// How it ended, where the launcher saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
}

/// A higher interface at which the program was cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    pub name: String,
    /// The library made from a header of the user's own, in the recording's folder; none for one
    /// that is built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library: Option<String>,
    /// The functions of such a library, in the order of their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadedFile {
    pub path: Text,
    /// What identifies its content: `build-id …` where the linker left one, `xxh3 …` elsewhere.
    pub identity: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    pub name: String,
    pub kernel: String,
    pub processor: String,
}

/// Bytes that mostly are text: JSON text where they are UTF-8, an array of numbers elsewhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Text(pub OsString);

impl Text {
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }

    pub fn lossy(&self) -> std::borrow::Cow<'_, str> {
        self.0.to_string_lossy()
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, formatter)
    }
}

impl<T: AsRef<OsStr> + ?Sized> From<&T> for Text {
    fn from(text: &T) -> Self {
        Text(text.as_ref().into())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    Text(String),
    Bytes(Vec<u8>),
}

impl Serialize for Text {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str() {
            Some(text) => serializer.serialize_str(text),
            None => self.0.as_bytes().serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Text(match Form::deserialize(deserializer)? {
            Form::Text(text) => text.into(),
            Form::Bytes(bytes) => OsString::from_vec(bytes),
        }))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("{} is not empty", .0.display())]
    NotEmpty(PathBuf),
    #[error("{} cannot be made", path.display())]
    Make { path: PathBuf, source: io::Error },
    #[error("{} cannot be written", path.display())]
    Write { path: PathBuf, source: io::Error },
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{} does not exist", .0.display())]
    NoFolder(PathBuf),
    #[error("{} has no {FILE}", .0.display())]
    NoRecording(PathBuf),
    #[error("{} cannot be read", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is damaged", path.display())]
    Damaged {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("the recording is of log version {recorded}, this hindcast reads version {own}")]
    Version { recorded: u32, own: u32 },
}

/// Makes the folder of a new recording. One that is there already must be empty: a recording is
/// never written over.
pub fn make_folder(path: &Path) -> Result<(), FolderError> {
    let cannot = |source| FolderError::Make {
        path: path.into(),
        source,
    };
    hindcast_private::folders(path).map_err(cannot)?;
    match std::fs::read_dir(path).map_err(cannot)?.next() {
        Some(_) => Err(FolderError::NotEmpty(path.into())),
        None => Ok(()),
    }
}

impl Recording {
    pub fn open(folder: &Path) -> Result<Recording, OpenError> {
        let path = folder.join(FILE);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !folder.exists() => {
                return Err(OpenError::NoFolder(folder.into()));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(OpenError::NoRecording(folder.into()));
            }
            Err(source) => return Err(OpenError::Read { path, source }),
        };
        // The version decides whether the rest can be understood, so it is looked at alone.
        #[derive(Deserialize)]
        struct Version {
            log_version: u32,
        }
        let damaged = |source| OpenError::Damaged {
            path: path.clone(),
            source,
        };
        let version: Version = serde_json::from_slice(&text).map_err(damaged)?;
        if version.log_version != hindcast_execlog::VERSION {
            return Err(OpenError::Version {
                recorded: version.log_version,
                own: hindcast_execlog::VERSION,
            });
        }
        serde_json::from_slice(&text).map_err(damaged)
    }

    /// Writes it, whole or not at all.
    pub fn save(&self, folder: &Path) -> Result<(), FolderError> {
        let path = folder.join(FILE);
        let cannot = |source| FolderError::Write {
            path: path.clone(),
            source,
        };
        let mut text = serde_json::to_vec_pretty(self).map_err(|error| cannot(error.into()))?;
        text.push(b'\n');
        let draft = folder.join("recording.json.new");
        hindcast_private::write(&draft, text).map_err(cannot)?;
        std::fs::rename(&draft, &path).map_err(cannot)
    }

    /// The names of what events are.
    pub fn names(&self) -> log::Names {
        // The loader initialises the libraries last to first, and that is when they get their
        // numbers.
        let own = self
            .interfaces
            .iter()
            .rev()
            .flat_map(|interface| interface.functions.clone());
        log::Names { own: own.collect() }
    }

    /// The libraries of the user's own interfaces, as they were.
    pub fn own_interfaces(&self, folder: &Path) -> Result<Vec<launch::Interface>, OpenError> {
        let mut made = Vec::new();
        for interface in &self.interfaces {
            // A name, not a path: the file is the recording's own.
            let Some(name) = interface
                .library
                .as_ref()
                .and_then(|file| Path::new(file).file_name())
            else {
                continue;
            };
            let path = folder.join(name);
            let library =
                std::fs::read(&path).map_err(|source| OpenError::Read { path, source })?;
            made.push(launch::Interface {
                name: interface.name.clone(),
                library,
            });
        }
        Ok(made)
    }

    /// What replay executes.
    pub fn image(&self) -> Image {
        let texts = |texts: &[Text]| texts.iter().map(|text| text.0.clone()).collect();
        let folder = self.folder.as_path();
        Image {
            path: self.path.as_path().into(),
            arguments: texts(&self.arguments),
            environment: texts(&self.environment),
            folder: folder.is_dir().then(|| folder.into()),
            stack_limit: self.stack_limit,
        }
    }
}
