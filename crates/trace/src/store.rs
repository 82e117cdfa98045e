//! The place where a trace is kept, folder or object store, behind one blocking interface.
//!
//! Objects appear whole or not at all, and once they appeared they survive a crash: a folder gets
//! its files by write, fsync, rename, fsync of the folder; a store by a single put or a completed
//! multipart upload.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::aws::AmazonS3Builder;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload, RetryConfig, WriteMultipart};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use xxhash_rust::xxh3::Xxh3;

use crate::crypt::{HEADER_BYTES, Keyring, Sealed, SealedError};
use crate::{Key, Location, OpenError, ReadError, SecretKey};

/// Files longer than this are uploaded in parts, and read in blocks.
const PART_BYTES: usize = 8 << 20;
const BLOCK_BYTES: u64 = 1 << 20;
/// How many blocks one opened object keeps: a reader of all columns of a row group reads from as
/// many places.
const BLOCKS_KEPT: usize = 48;
const PARALLEL_READS: usize = 32;
const CHECK_BYTES: usize = 256 << 10;

#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("{what}")]
    Io { what: String, source: io::Error },
    #[error("{what}")]
    Object {
        what: String,
        source: object_store::Error,
    },
    #[error("{what} cannot be decrypted")]
    Sealed { what: String, source: SealedError },
}

impl StoreError {
    /// The error and what caused it, in one line: for status and gap records.
    pub fn in_one_line(&self) -> String {
        match self {
            Self::Io { what, source } => format!("{what}: {source}"),
            Self::Object { what, source } => format!("{what}: {source}"),
            Self::Sealed { what, source } => format!("{what} cannot be decrypted: {source}"),
        }
    }
}

impl From<StoreError> for OpenError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Io { what, source } => Self::Io { what, source },
            StoreError::Object { what, source } => Self::Store { what, source },
            StoreError::Sealed { what, source } => Self::Damaged {
                what,
                reason: source.to_string(),
            },
        }
    }
}

impl From<StoreError> for ReadError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Io { what, source } => Self::Io { what, source },
            StoreError::Object { what, source } => Self::Store { what, source },
            StoreError::Sealed { what, source } => Self::Damaged {
                what,
                reason: source.to_string(),
            },
        }
    }
}

/// Cheap to clone. Names are relative to the trace, with `/` between folders.
#[derive(Clone)]
pub(crate) struct Store {
    location: Location,
    objects: Option<Objects>,
    /// If what is in it is encrypted.
    keyring: Option<Arc<Keyring>>,
}

#[derive(Clone)]
struct Objects {
    store: Arc<dyn ObjectStore>,
    prefix: ObjectPath,
    runtime: Arc<Runtime>,
}

impl Store {
    /// Does not look whether anything is there.
    pub fn new(location: &Location) -> Result<Self, OpenError> {
        let objects = match location {
            Location::Folder(_) => None,
            Location::S3 { bucket, prefix } => {
                let failed = |source| OpenError::Store {
                    what: format!("{location} cannot be reached"),
                    source,
                };
                // A second installation is refused, which is fine: one was chosen already.
                let _ = rustls::crypto::ring::default_provider().install_default();
                let retry = RetryConfig {
                    max_retries: 4,
                    retry_timeout: Duration::from_secs(20),
                    ..Default::default()
                };
                let store = AmazonS3Builder::from_env()
                    .with_bucket_name(bucket)
                    .with_retry(retry)
                    .build()
                    .map_err(failed)?;
                let runtime = Runtime::start().map_err(|source| OpenError::Io {
                    what: "no thread for the object store".into(),
                    source,
                })?;
                let prefix = ObjectPath::parse(prefix).map_err(|source| failed(source.into()))?;
                Some(Objects {
                    store: Arc::new(store),
                    prefix,
                    runtime: Arc::new(runtime),
                })
            }
        };
        Ok(Self {
            location: location.clone(),
            objects,
            keyring: None,
        })
    }

    /// The same place, whose tables and write-ahead files are encrypted.
    pub fn sealed_with(mut self, key: Key) -> Self {
        self.keyring = Some(Arc::new(Keyring::new(key)));
        self
    }

    pub fn keyring(&self) -> Option<&Keyring> {
        self.keyring.as_deref()
    }

    pub fn location(&self) -> &Location {
        &self.location
    }

    /// The folder, if the trace is in one.
    pub fn folder(&self) -> Option<&Path> {
        match &self.location {
            Location::Folder(folder) => Some(folder),
            Location::S3 { .. } => None,
        }
    }

    pub fn shown(&self, name: &str) -> String {
        format!("{}/{name}", self.location)
    }

    /// Names (without the folder) of the objects in a folder; none if there is no such folder.
    pub fn list(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        let mut names = match &self.objects {
            None => {
                let entries = match fs::read_dir(self.path(folder)) {
                    Ok(entries) => entries,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                    Err(source) => return Err(self.io(folder, "cannot be listed", source)),
                };
                let names =
                    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
                names
                    .collect::<io::Result<Vec<_>>>()
                    .map_err(|source| self.io(folder, "cannot be listed", source))?
            }
            Some(objects) => {
                let (store, prefix) = (Arc::clone(&objects.store), objects.path(folder));
                let listed = objects.runtime.wait(async move {
                    store
                        .list(Some(&prefix))
                        .map_ok(|object| object.location)
                        .try_collect::<Vec<_>>()
                        .await
                });
                let paths =
                    listed.map_err(|source| self.object(folder, "cannot be listed", source))?;
                paths
                    .iter()
                    .filter_map(|path| path.filename().map(str::to_owned))
                    .collect()
            }
        };
        names.retain(|name| !name.starts_with('.'));
        names.sort_unstable();
        Ok(names)
    }

    pub fn read(&self, name: &str) -> Result<Option<Bytes>, StoreError> {
        Ok(self
            .read_all(std::slice::from_ref(&name))?
            .pop()
            .expect("one answer per name"))
    }

    /// Many small objects, at once where that is faster; `None` where there is none.
    pub fn read_all<N: AsRef<str>>(&self, names: &[N]) -> Result<Vec<Option<Bytes>>, StoreError> {
        let Some(objects) = &self.objects else {
            let read = |name: &N| match fs::read(self.path(name.as_ref())) {
                Ok(bytes) => Ok(Some(Bytes::from(bytes))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(source) => Err(self.io(name.as_ref(), "cannot be read", source)),
            };
            return names.iter().map(read).collect();
        };
        let gets = names.iter().map(|name| {
            let (store, path) = (Arc::clone(&objects.store), objects.path(name.as_ref()));
            async move {
                match store.get(&path).await {
                    Ok(found) => found.bytes().await.map(Some),
                    Err(object_store::Error::NotFound { .. }) => Ok(None),
                    Err(error) => Err(error),
                }
            }
        });
        let gets: Vec<_> = gets.collect();
        let all = futures::stream::iter(gets)
            .buffered(PARALLEL_READS)
            .try_collect::<Vec<_>>();
        let what = names.first().map_or("", |name| name.as_ref());
        objects
            .runtime
            .wait(all)
            .map_err(|source| self.object(what, "cannot be read", source))
    }

    /// Creates an object unless there is one of that name; says whether it did.
    pub fn create(&self, name: &str, contents: Vec<u8>) -> Result<bool, StoreError> {
        let Some(objects) = &self.objects else {
            return create_file(&self.path(name), &contents)
                .map_err(|source| self.io(name, "cannot be created", source));
        };
        let (store, path) = (Arc::clone(&objects.store), objects.path(name));
        let put = async move {
            store
                .put_opts(&path, PutPayload::from(contents), PutMode::Create.into())
                .await
        };
        match objects.runtime.wait(put) {
            Ok(_) => Ok(true),
            Err(
                object_store::Error::AlreadyExists { .. }
                | object_store::Error::Precondition { .. },
            ) => Ok(false),
            Err(source) => Err(self.object(name, "cannot be created", source)),
        }
    }

    /// Creates or replaces an object.
    pub fn put(&self, name: &str, contents: Vec<u8>) -> Result<(), StoreError> {
        let Some(objects) = &self.objects else {
            let path = self.path(name);
            let hidden = hidden_sibling(&path);
            let written =
                write_synced(&hidden, &contents).and_then(|()| rename_synced(&hidden, &path));
            return written.map_err(|source| {
                let _ = fs::remove_file(&hidden);
                self.io(name, "cannot be written", source)
            });
        };
        let (store, path) = (Arc::clone(&objects.store), objects.path(name));
        let put = objects
            .runtime
            .wait(async move { store.put(&path, PutPayload::from(contents)).await });
        put.map(drop)
            .map_err(|source| self.object(name, "cannot be written", source))
    }

    /// Removes an object; it may be gone already.
    pub fn remove(&self, name: &str) -> Result<(), StoreError> {
        let Some(objects) = &self.objects else {
            return match fs::remove_file(self.path(name)) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    Err(self.io(name, "cannot be removed", source))
                }
                _ => Ok(()),
            };
        };
        let (store, path) = (Arc::clone(&objects.store), objects.path(name));
        let removed = objects
            .runtime
            .wait(async move { store.delete(&path).await });
        match removed {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(self.object(name, "cannot be removed", source)),
        }
    }

    /// Where a file that is to become `name` should be written: beside it in a folder, in `local`
    /// for a store.
    pub fn draft(&self, name: &str, local: &Path) -> PathBuf {
        match &self.objects {
            None => hidden_sibling(&self.path(name)),
            Some(_) => local.join(format!(".{}.draft", name.replace('/', "-"))),
        }
    }

    /// Turns a finished and synced draft into the object `name`. The draft is gone afterwards.
    pub fn publish(&self, draft: &Path, name: &str) -> Result<(), StoreError> {
        let Some(objects) = &self.objects else {
            return rename_synced(draft, &self.path(name))
                .map_err(|source| self.io(name, "cannot be written", source));
        };
        let (store, path) = (Arc::clone(&objects.store), objects.path(name));
        let file =
            File::open(draft).map_err(|source| self.io(name, "cannot be read back", source))?;
        let uploaded = objects.runtime.wait(upload(store, path, file));
        uploaded.map_err(|source| self.object(name, "cannot be uploaded", source))?;
        // A draft left behind is replaced when its segment is written again, and only costs space.
        let _ = fs::remove_file(draft);
        Ok(())
    }

    /// Opens a table for reading any part of it, decrypted.
    pub fn open(&self, name: &str) -> Result<Chunks, StoreError> {
        let chunks = self.open_as_it_is(name)?;
        match self.keyring().and_then(Keyring::secret) {
            None => Ok(chunks),
            Some(secret) => chunks.unsealed(secret, name),
        }
    }

    /// Opens an object for reading any part of it.
    pub fn open_as_it_is(&self, name: &str) -> Result<Chunks, StoreError> {
        let shown = self.shown(name);
        let Some(objects) = &self.objects else {
            let failed = |source| self.io(name, "cannot be opened", source);
            let file = File::open(self.path(name)).map_err(failed)?;
            let length = file.metadata().map_err(failed)?.len();
            return Ok(Chunks {
                source: Source::File(Arc::new(file)),
                length,
                shown: shown.into(),
                sealed: None,
            });
        };
        let (store, path) = (Arc::clone(&objects.store), objects.path(name));
        let head = objects.runtime.wait(async move { store.head(&path).await });
        let length = head
            .map_err(|source| self.object(name, "cannot be opened", source))?
            .size;
        let object = RemoteObject {
            objects: objects.clone(),
            path: objects.path(name),
            length,
            blocks: Mutex::default(),
        };
        Ok(Chunks {
            source: Source::Object(Arc::new(object)),
            length,
            shown: shown.into(),
            sealed: None,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder()
            .expect("only a trace in a folder has paths")
            .join(name)
    }

    fn io(&self, name: &str, problem: &str, source: io::Error) -> StoreError {
        StoreError::Io {
            what: format!("{} {problem}", self.shown(name)),
            source,
        }
    }

    fn object(&self, name: &str, problem: &str, source: object_store::Error) -> StoreError {
        StoreError::Object {
            what: format!("{} {problem}", self.shown(name)),
            source,
        }
    }
}

impl Objects {
    fn path(&self, name: &str) -> ObjectPath {
        name.split('/')
            .fold(self.prefix.clone(), |path, part| path.join(part))
    }
}

async fn upload(
    store: Arc<dyn ObjectStore>,
    path: ObjectPath,
    mut file: File,
) -> Result<(), object_store::Error> {
    let broken = |source: io::Error| object_store::Error::Generic {
        store: "local draft",
        source: Box::new(source),
    };
    let length = file.metadata().map_err(broken)?.len();
    if length <= PART_BYTES as u64 {
        let mut contents = Vec::with_capacity(length as usize);
        file.read_to_end(&mut contents).map_err(broken)?;
        return store.put(&path, PutPayload::from(contents)).await.map(drop);
    }
    let mut parts =
        WriteMultipart::new_with_chunk_size(store.put_multipart(&path).await?, PART_BYTES);
    let mut part = vec![0; PART_BYTES];
    loop {
        let read = file.read(&mut part).map_err(broken)?;
        if read == 0 {
            return parts.finish().await.map(drop);
        }
        parts.wait_for_capacity(1).await?;
        parts.write(&part[..read]);
    }
}

fn hidden_sibling(path: &Path) -> PathBuf {
    let name = path
        .file_name()
        .expect("objects have names")
        .to_string_lossy();
    path.with_file_name(format!(".{name}.draft"))
}

fn write_synced(path: &Path, contents: &[u8]) -> io::Result<()> {
    create_parent(path)?;
    let mut file = hindcast_private::create(path)?;
    file.write_all(contents)?;
    file.sync_all()
}

fn rename_synced(from: &Path, to: &Path) -> io::Result<()> {
    create_parent(to)?;
    fs::rename(from, to)?;
    sync_parent(to)
}

pub(crate) fn create_parent(path: &Path) -> io::Result<()> {
    path.parent()
        .map_or(Ok(()), |parent| hindcast_private::folders(parent).map(drop))
}

/// Makes the creation, renaming or removal of a file survive a crash.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

/// A hard link fails if the name is taken, and never shows a file half-written.
fn create_file(path: &Path, contents: &[u8]) -> io::Result<bool> {
    create_parent(path)?;
    if path.exists() {
        return Ok(false);
    }
    static ATTEMPTS: AtomicU32 = AtomicU32::new(0);
    // Another process may be about to create the same file: each needs a draft of its own.
    let attempt = ATTEMPTS.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let hidden = path.with_file_name(format!(".{name}.{}.{attempt}", std::process::id()));
    write_synced(&hidden, contents)?;
    let linked = fs::hard_link(&hidden, path);
    fs::remove_file(&hidden)?;
    match linked {
        Ok(()) => sync_parent(path).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        // Some file systems have no hard links.
        Err(_) => match hindcast_private::options()
            .write(true)
            .create_new(true)
            .open(path)
        {
            Ok(mut file) => {
                file.write_all(contents)?;
                file.sync_all()?;
                sync_parent(path).map(|()| true)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        },
    }
}

/// A private runtime for the object store, so that callers need none and may be anywhere.
struct Runtime(Option<tokio::runtime::Runtime>);

impl Runtime {
    fn start() -> io::Result<Self> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        Ok(Self(Some(
            builder
                .worker_threads(1)
                .thread_name("hindcast-store")
                .enable_all()
                .build()?,
        )))
    }

    /// Runs a future on the runtime's own thread and waits for it.
    fn wait<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> T {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.0
            .as_ref()
            .expect("the runtime lives until it is dropped")
            .spawn(async move {
                // If the receiver is gone, the result is not waited for any more.
                let _ = sender.send(future.await);
            });
        receiver.recv().expect("requests to the store do not panic")
    }
}

impl Drop for Runtime {
    /// Unlike the runtime's own, this may happen inside an asynchronous context.
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// One object, any part of which can be read.
#[derive(Clone)]
pub(crate) struct Chunks {
    source: Source,
    /// Of the object as it is.
    length: u64,
    shown: Arc<str>,
    sealed: Option<Arc<Unsealing>>,
}

/// Decrypts, and keeps the chunks that were used last: what reads pages reads a little at a time.
struct Unsealing {
    sealed: Sealed,
    /// Most recently used last.
    kept: Mutex<Vec<(u64, Bytes)>>,
}

#[derive(Clone)]
enum Source {
    File(Arc<File>),
    Object(Arc<RemoteObject>),
}

struct RemoteObject {
    objects: Objects,
    path: ObjectPath,
    length: u64,
    /// Most recently used last.
    blocks: Mutex<Vec<(u64, Bytes)>>,
}

impl Chunks {
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Reads a file through and compares its checksum: a Parquet file protects hardly any of its
    /// bytes itself, and what is wrong in it may be read as something else. An object store answers
    /// for what it keeps.
    pub fn check(&self, length: u64, xxh3: &str) -> Result<(), ReadError> {
        let damaged = |reason: &str| ReadError::Damaged {
            what: self.shown.to_string(),
            reason: reason.to_owned(),
        };
        if self.length != length {
            return Err(damaged(&format!(
                "it is {} bytes long, and was {length}",
                self.length
            )));
        }
        let Source::File(file) = &self.source else {
            return Ok(());
        };
        let (mut hash, mut buffer, mut at) = (Xxh3::new(), vec![0; CHECK_BYTES], 0);
        while at < length {
            let read = file.read_at(&mut buffer, at);
            let read = read.map_err(|source| ReadError::Io {
                what: format!("{} cannot be read", self.shown),
                source,
            })?;
            if read == 0 {
                return Err(damaged("it became shorter"));
            }
            hash.update(&buffer[..read]);
            at += read as u64;
        }
        match format!("{:016x}", hash.digest()) == xxh3 {
            true => Ok(()),
            false => Err(damaged("its checksum is not the one it was written with")),
        }
    }

    fn unsealed(mut self, secret: &SecretKey, name: &str) -> Result<Self, StoreError> {
        let what = self.shown.to_string();
        let header = (HEADER_BYTES as u64).min(self.length);
        let header = self.stored(0, header as usize);
        let header = header.map_err(|source| StoreError::Io {
            what: format!("{what} cannot be read"),
            source: io::Error::other(source),
        })?;
        let sealed = Sealed::open(secret, name, &header, self.length)
            .map_err(|source| StoreError::Sealed { what, source })?;
        self.sealed = Some(Arc::new(Unsealing {
            sealed,
            kept: Mutex::default(),
        }));
        Ok(self)
    }

    /// How many bytes there are to read.
    fn readable(&self) -> u64 {
        let sealed = self.sealed.as_ref();
        sealed.map_or(self.length, |unsealing| unsealing.sealed.length())
    }

    fn at(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let end = start.checked_add(length as u64);
        let end = end.filter(|end| *end <= self.readable()).ok_or_else(|| {
            ParquetError::EOF(format!(
                "{length} bytes at {start} wanted of {}",
                self.readable()
            ))
        })?;
        let Some(unsealing) = &self.sealed else {
            return self.stored(start, length);
        };
        let mut bytes = Vec::with_capacity(length);
        let mut position = start;
        while position < end {
            let (chunk, first) = unsealing.sealed.chunk_at(position);
            let plain = self.chunk(unsealing, chunk)?;
            let from = (position - first) as usize;
            let to = plain.len().min((end - first) as usize);
            if position == start && first + to as u64 == end {
                return Ok(plain.slice(from..to));
            }
            bytes.extend_from_slice(&plain[from..to]);
            position = first + to as u64;
        }
        Ok(bytes.into())
    }

    fn chunk(&self, unsealing: &Unsealing, number: u64) -> Result<Bytes, ParquetError> {
        let mut kept = unsealing
            .kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(position) = kept.iter().position(|(kept, _)| *kept == number) {
            let chunk = kept.remove(position);
            kept.push(chunk.clone());
            return Ok(chunk.1);
        }
        let place = unsealing.sealed.place(number);
        let mut bytes = self
            .stored(place.start, (place.end - place.start) as usize)?
            .to_vec();
        let plain = unsealing.sealed.unseal(number, &mut bytes);
        let length = plain
            .map_err(|error| ParquetError::External(Box::new(error)))?
            .len();
        bytes.truncate(length);
        let bytes = Bytes::from(bytes);
        if kept.len() == BLOCKS_KEPT {
            kept.remove(0);
        }
        kept.push((number, bytes.clone()));
        Ok(bytes)
    }

    /// Bytes as they are stored.
    fn stored(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        match &self.source {
            Source::File(file) => {
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, start)?;
                Ok(bytes.into())
            }
            Source::Object(object) => object
                .at(start, length)
                .map_err(|error| ParquetError::External(Box::new(error))),
        }
    }
}

impl RemoteObject {
    /// Small objects are fetched whole.
    fn block_bytes(&self) -> u64 {
        if self.length <= PART_BYTES as u64 {
            self.length.max(1)
        } else {
            BLOCK_BYTES
        }
    }

    fn at(&self, start: u64, length: usize) -> Result<Bytes, object_store::Error> {
        let end = start + length as u64;
        let size = self.block_bytes();
        let (first, last) = (start / size, end.saturating_sub(1).max(start) / size);
        if first == last {
            let block = self.block(first)?;
            let from = (start - first * size) as usize;
            return Ok(block.slice(from..from + length));
        }
        let mut bytes = Vec::with_capacity(length);
        for number in first..=last {
            let block = self.block(number)?;
            let from = start.saturating_sub(number * size) as usize;
            let to = ((end - number * size) as usize).min(block.len());
            bytes.extend_from_slice(&block[from..to]);
        }
        Ok(bytes.into())
    }

    fn block(&self, number: u64) -> Result<Bytes, object_store::Error> {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(position) = blocks.iter().position(|(kept, _)| *kept == number) {
            let block = blocks.remove(position);
            blocks.push(block.clone());
            return Ok(block.1);
        }
        let start = number * self.block_bytes();
        let end = (start + self.block_bytes()).min(self.length);
        let (store, path) = (Arc::clone(&self.objects.store), self.path.clone());
        let bytes = self
            .objects
            .runtime
            .wait(async move { store.get_range(&path, start..end).await })?;
        if blocks.len() == BLOCKS_KEPT {
            blocks.remove(0);
        }
        blocks.push((number, bytes.clone()));
        Ok(bytes)
    }
}

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.readable()
    }
}

impl ChunkReader for Chunks {
    type T = ChunkCursor;

    fn get_read(&self, start: u64) -> Result<ChunkCursor, ParquetError> {
        Ok(ChunkCursor {
            chunks: self.clone(),
            position: start,
            buffer: Bytes::new(),
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        self.at(start, length)
    }
}

/// Reads on from a position; page headers are short, so it fetches little at a time.
pub(crate) struct ChunkCursor {
    chunks: Chunks,
    position: u64,
    buffer: Bytes,
}

impl Read for ChunkCursor {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        if self.buffer.is_empty() {
            let left = self.chunks.readable().saturating_sub(self.position);
            let wanted = left.min(512.max(target.len() as u64));
            if wanted == 0 {
                return Ok(0);
            }
            self.buffer = self
                .chunks
                .at(self.position, wanted as usize)
                .map_err(io::Error::other)?;
            self.position += wanted;
        }
        let read = target.len().min(self.buffer.len());
        target[..read].copy_from_slice(&self.buffer.split_to(read));
        Ok(read)
    }
}
