//! Archived WAL: where segments come from, which transactions commit in them and in which order,
//! and where to stop.
//!
//! Recorded answers tell only roughly in which order transactions committed; WAL tells exactly. So
//! before anything is recovered the commits after the backup are read from it, and recovery stops
//! right after the last one that is wanted.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use hindcast_pg::Lsn;
use hindcast_trace::{Snapshot, Xid};
use hindcast_wal::{Decoder, Ending, Malformed, Record, widen};

use crate::backup::{Backup, text_of};
use crate::error::RewindError;
use crate::point::{Point, Progress, Step};
use hindcast_cluster::RunAs;

/// One commit record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    /// Where the record begins.
    pub lsn: Lsn,
    pub xid: Xid,
}

/// Where recovery stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// As soon as the backup is consistent.
    Consistent,
    /// Right after this commit.
    After(Commit),
}

/// Chooses where to stop, commit by commit in the order of WAL.
#[derive(Debug)]
struct Choice<'a> {
    point: &'a Point,
    /// Where the backup becomes consistent: recovery cannot stop earlier.
    end: Lsn,
    /// Wanted commits that must come and have not.
    awaited: BTreeSet<Xid>,
    last_in: Option<Commit>,
    first_out: Option<Commit>,
}

impl<'a> Choice<'a> {
    fn new(point: &'a Point, backup: &Backup, end: Lsn) -> Self {
        let awaited = point.included.range(backup.next_xid..).copied().collect();
        Self {
            point,
            end,
            awaited,
            last_in: None,
            first_out: None,
        }
    }

    /// What the point says about a transaction. `None`: either way is fine.
    fn wanted(&self, xid: Xid) -> Option<bool> {
        if self.point.included.contains(&xid) {
            return Some(true);
        }
        if self.point.excluded.contains(&xid) {
            return Some(false);
        }
        if self.point.own.contains(&xid) {
            return None;
        }
        // Nobody recorded it, but the first transaction's snapshot knows.
        self.point
            .first_snapshot
            .as_ref()
            .map(|first: &Snapshot| first.sees(xid))
    }

    fn see(&mut self, commit: Commit) -> Result<(), RewindError> {
        self.awaited.remove(&commit.xid);
        match self.wanted(commit.xid) {
            Some(true) => {
                if let Some(out) = self.first_out {
                    return Err(RewindError::Interleaved {
                        excluded: out.xid,
                        excluded_at: out.lsn,
                        included: commit.xid,
                        included_at: commit.lsn,
                    });
                }
                self.last_in = Some(commit);
            }
            Some(false) => {
                if commit.lsn < self.end {
                    return Err(RewindError::BaseTooNew {
                        xids: vec![commit.xid],
                    });
                }
                self.first_out.get_or_insert(commit);
            }
            None => {}
        }
        Ok(())
    }

    /// Nothing that may come can change the choice. (A wanted one after an unwanted one would be an
    /// error, but only awaited ones are sure to exist.)
    fn is_settled(&self) -> bool {
        self.awaited.is_empty() && self.first_out.is_some()
    }

    fn target(&self) -> Target {
        match self.last_in {
            Some(commit) if commit.lsn >= self.end => Target::After(commit),
            _ => Target::Consistent,
        }
    }
}

/// Reads WAL from the backup's start until it is certain where to stop. All segments that recovery
/// needs are in the staging folder then.
pub(crate) fn find_target(
    source: &mut Source,
    backup: &Backup,
    point: &Point,
    progress: &Progress,
) -> Result<Target, RewindError> {
    let timelines = source.timelines(backup.timeline)?;
    let mut reader = Reader {
        source,
        backup,
        timelines,
        progress,
        seen_to: Lsn(0),
        newest: backup.next_xid,
    };
    let end = match backup.end {
        Some(end) => end,
        None => reader.backup_end()?,
    };
    let mut choice = Choice::new(point, backup, end);
    let reached = reader.commits(&mut choice)?;
    match reached {
        Ended::Settled => {}
        Ended::Gap { segment } if !choice.awaited.is_empty() || end > reader.end_of_available() => {
            return Err(RewindError::SegmentMissing {
                segment,
                archive: reader.source.shown(),
                needed: choice.awaited.into_iter().collect(),
            });
        }
        Ended::EndOfArchive { segment }
            if !choice.awaited.is_empty() || end > reader.end_of_available() =>
        {
            return Err(RewindError::NotReached {
                archive: reader.source.shown(),
                reached: reader.seen_to.max(backup.start),
                segment,
                needed: choice.awaited.into_iter().collect(),
            });
        }
        Ended::Gap { .. } | Ended::EndOfArchive { .. } => {}
    }
    Ok(choice.target())
}

enum Ended {
    Settled,
    /// This segment is not there, later ones are.
    Gap {
        segment: String,
    },
    /// This segment is not there, nor the one after it.
    EndOfArchive {
        segment: String,
    },
}

/// How much of a segment is read at once.
const CHUNK_BYTES: usize = 256 << 10;

struct Reader<'a> {
    source: &'a mut Source,
    backup: &'a Backup,
    /// Newest first.
    timelines: Vec<Timeline>,
    progress: &'a Progress,
    /// The start of the last record looked at.
    seen_to: Lsn,
    /// To extend 32-bit ids: consecutive commits are never 2³¹ apart.
    newest: Xid,
}

impl Reader<'_> {
    fn segment_of(&self, lsn: Lsn) -> u64 {
        lsn.0 / self.backup.format.segment_bytes
    }

    fn end_of_available(&self) -> Lsn {
        self.source.available_to
    }

    fn name(&self, segment: u64) -> String {
        let bytes = self.backup.format.segment_bytes;
        let mut timelines = self.timelines.iter();
        let timeline = timelines.find(|timeline| timeline.begin.0 / bytes <= segment);
        let timeline = timeline.map_or(self.backup.timeline, |timeline| timeline.id);
        segment_name(timeline, segment, bytes)
    }

    /// Puts a segment where recovery will find it, as the newest timeline that has it knows it.
    fn stage(&mut self, segment: u64) -> Result<bool, RewindError> {
        let name = self.name(segment);
        (self.progress)(Step::ReadingWal {
            segment: name.clone(),
        });
        if !self.source.fetch(&name)? {
            return Ok(false);
        }
        self.source.available_to = Lsn((segment + 1) * self.backup.format.segment_bytes);
        Ok(true)
    }

    fn commits(&mut self, choice: &mut Choice<'_>) -> Result<Ended, RewindError> {
        let format = self.backup.format;
        let (mut newest, mut seen_to) = (self.newest, self.seen_to);
        let ended = self.records(|record| {
            seen_to = record.lsn;
            if record.ends_transaction() != Some(true) {
                return Ok(false);
            }
            let Some(ending) = Ending::read(format, record) else {
                let (what, at) = ("a commit that cannot be read", record.lsn);
                return Err(Malformed { what, at }.into());
            };
            if ending.top == 0 {
                return Ok(false);
            }
            // Subtransactions commit with the transaction that they belong to, and some recorders
            // know them by name.
            for xid in ending.subtransactions.iter().rev().chain([&ending.top]) {
                let xid = Xid(widen(*xid, newest.0));
                newest = newest.max(xid);
                let lsn = record.lsn;
                choice.see(Commit { lsn, xid })?;
            }
            Ok(choice.is_settled())
        });
        (self.newest, self.seen_to) = (newest, seen_to);
        ended
    }

    /// Hands over records from the backup's start on, until `enough` says so or there are no more.
    fn records(
        &mut self,
        mut enough: impl FnMut(&Record<'_>) -> Result<bool, RewindError>,
    ) -> Result<Ended, RewindError> {
        let mut decoder = Decoder::new(self.backup.format, self.backup.start);
        let mut damage = None;
        for segment in self.segment_of(self.backup.start).. {
            let name = self.name(segment);
            if !self.stage(segment)? {
                let after = self.name(segment + 1);
                return Ok(match self.source.fetch(&after)? {
                    true => Ended::Gap { segment: name },
                    false => Ended::EndOfArchive { segment: name },
                });
            }
            // WAL ends somewhere in the last segment. Anywhere else that is damage.
            if let Some(damage) = damage {
                return Err(damage);
            }
            match self.segment(&mut decoder, &name, &mut enough) {
                Ok(true) => return Ok(Ended::Settled),
                Ok(false) => {}
                Err(error @ RewindError::WalUnreadable(_)) => damage = Some(error),
                Err(error) => return Err(error),
            }
        }
        unreachable!("there is no last segment number")
    }

    fn segment(
        &self,
        decoder: &mut Decoder,
        name: &str,
        enough: &mut impl FnMut(&Record<'_>) -> Result<bool, RewindError>,
    ) -> Result<bool, RewindError> {
        let path = self.source.staging.join(name);
        let failed = |source| RewindError::Copy {
            path: path.clone(),
            source,
        };
        let mut file = File::open(&path).map_err(failed)?;
        let within = decoder.position().0 % self.backup.format.segment_bytes;
        file.seek(SeekFrom::Start(within)).map_err(failed)?;
        let mut bytes = vec![0; CHUNK_BYTES];
        let mut told = Ok(false);
        while let Ok(false) = told {
            let count = file.read(&mut bytes).map_err(failed)?;
            if count == 0 {
                break;
            }
            let fed = decoder.feed(&bytes[..count], &mut |record| {
                // The first page may begin with records of before.
                if let Ok(false) = told
                    && record.lsn >= self.backup.start
                {
                    told = enough(record);
                }
            });
            if let Ok(false) = told {
                fed?;
            }
        }
        told
    }

    /// For backups without a manifest: the record that ends the backup says so itself.
    fn backup_end(&mut self) -> Result<Lsn, RewindError> {
        let start = self.backup.start;
        let mut found = None;
        let ended = self.records(|record| {
            if record.ends_backup() == Some(start) {
                found = Some(Lsn(record.lsn.0 + 1));
            }
            Ok(found.is_some())
        })?;
        match (found, ended) {
            (Some(end), _) => Ok(end),
            (None, Ended::Gap { segment } | Ended::EndOfArchive { segment }) => {
                Err(RewindError::NotReached {
                    archive: self.source.shown(),
                    reached: self.end_of_available(),
                    segment,
                    needed: Vec::new(),
                })
            }
            (None, Ended::Settled) => unreachable!("only what was found settles it"),
        }
    }
}

/// A timeline of the server: a new one begins with each promotion.
#[derive(Debug)]
struct Timeline {
    id: u32,
    begin: Lsn,
}

/// Where segments come from, and the folder in which recovery finds them.
pub(crate) struct Source {
    archive: Option<Archive>,
    /// The WAL that the backup itself holds.
    backup_wal: PathBuf,
    pub staging: PathBuf,
    run_as: RunAs,
    segment_bytes: u64,
    /// The end of the last segment fetched.
    available_to: Lsn,
}

enum Archive {
    Folder(PathBuf),
    Command(String),
}

impl Source {
    pub fn new(
        wal_archive: Option<&str>,
        backup: &Backup,
        staging: &Path,
        run_as: &RunAs,
    ) -> Result<Self, RewindError> {
        let archive = match wal_archive {
            None => None,
            Some(command) if command.contains("%f") => Some(Archive::Command(command.to_owned())),
            Some(folder) => {
                let refuse = |reason: String| RewindError::Archive {
                    archive: format!("the folder {folder}"),
                    reason,
                };
                let path = Path::new(folder)
                    .canonicalize()
                    .map_err(|error| refuse(error.to_string()))?;
                std::fs::read_dir(&path).map_err(|error| refuse(error.to_string()))?;
                Some(Archive::Folder(path))
            }
        };
        hindcast_private::folder(staging).map_err(|source| RewindError::Copy {
            path: staging.to_owned(),
            source,
        })?;
        run_as.own(staging)?;
        Ok(Self {
            archive,
            backup_wal: backup.folder.join("pg_wal"),
            staging: staging.to_owned(),
            run_as: run_as.clone(),
            segment_bytes: backup.format.segment_bytes,
            available_to: Lsn(0),
        })
    }

    /// For a backup without an archive: all the WAL that it holds itself.
    pub fn stage_backup_wal(&mut self) -> Result<(), RewindError> {
        let mut found = false;
        for entry in std::fs::read_dir(&self.backup_wal)
            .into_iter()
            .flatten()
            .flatten()
        {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let is_segment = name.len() == 24 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
            if is_segment || name.ends_with(".history") {
                found |= self.fetch(name)?;
            }
        }
        if found {
            return Ok(());
        }
        let folder = self
            .backup_wal
            .parent()
            .unwrap_or(&self.backup_wal)
            .to_owned();
        Err(RewindError::NotABackup {
            folder,
            reason: "it holds no WAL, and no archive of WAL was named".to_owned(),
        })
    }

    fn shown(&self) -> String {
        match &self.archive {
            None => format!("the WAL of the backup, {}", self.backup_wal.display()),
            Some(Archive::Folder(folder)) => format!("the WAL archive {}", folder.display()),
            Some(Archive::Command(command)) => format!("the WAL archive behind `{command}`"),
        }
    }

    /// Puts a segment or a history file into the staging folder. `false`: there is none of that
    /// name.
    fn fetch(&mut self, name: &str) -> Result<bool, RewindError> {
        let staged = self.staging.join(name);
        if staged.exists() {
            return Ok(true);
        }
        match &self.archive {
            Some(Archive::Folder(folder)) => {
                // What pg_receivewal is still writing serves as well: it is as long as a segment
                // and ends in zeros.
                for name in [name.to_owned(), format!("{name}.partial")] {
                    if self.take(&folder.join(name), &staged)? {
                        return Ok(true);
                    }
                }
            }
            Some(Archive::Command(command)) if self.run(command, name, &staged)? => {
                return Ok(true);
            }
            Some(Archive::Command(_)) | None => {}
        }
        let backup_wal = self.backup_wal.join(name);
        self.take(&backup_wal, &staged)
    }

    /// Links to the file if the server's user can read it, else copies it.
    fn take(&self, file: &Path, staged: &Path) -> Result<bool, RewindError> {
        let error = |source| RewindError::Copy {
            path: file.to_owned(),
            source,
        };
        let metadata = match std::fs::metadata(file) {
            Ok(metadata) => metadata,
            Err(missing) if missing.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(other) => return Err(error(other)),
        };
        let is_segment = staged.extension().is_none();
        if is_segment && metadata.len() != self.segment_bytes {
            return Err(RewindError::Archive {
                archive: self.shown(),
                reason: format!(
                    "{} has {} bytes, a segment has {}",
                    file.display(),
                    metadata.len(),
                    self.segment_bytes
                ),
            });
        }
        let readable = match &self.run_as {
            RunAs::Ourselves => true,
            RunAs::User { .. } => self
                .run_as
                .command("/bin/sh", Path::new("/"))
                .args(["-c", "test -r \"$1\"", "sh"])
                .arg(file)
                .stdin(Stdio::null())
                .status()
                .is_ok_and(|status| status.success()),
        };
        if readable {
            std::os::unix::fs::symlink(file, staged).map_err(error)?;
        } else {
            hindcast_private::copy(file, staged).map_err(error)?;
        }
        self.run_as.own(staged)?;
        Ok(true)
    }

    /// Runs a `restore_command` as Postgres would.
    fn run(&self, command: &str, name: &str, staged: &Path) -> Result<bool, RewindError> {
        let unfinished = staged.with_file_name("unfinished");
        let mut text = String::new();
        let mut characters = command.chars();
        while let Some(character) = characters.next() {
            match (character, character == '%') {
                (_, false) => text.push(character),
                _ => match characters.next() {
                    Some('f') => text.push_str(name),
                    Some('p') => text.push_str(&unfinished.display().to_string()),
                    // The oldest segment that is still needed: all of them, as far as the archive
                    // is concerned.
                    Some('r') => text.push_str("000000010000000000000000"),
                    Some('%') => text.push('%'),
                    Some(other) => text.extend(['%', other]),
                    None => text.push('%'),
                },
            }
        }
        let refuse = |reason: String| RewindError::Archive {
            archive: self.shown(),
            reason,
        };
        let output = self
            .run_as
            .command("/bin/sh", &self.staging)
            .arg("-c")
            .arg(&text)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| refuse(error.to_string()))?;
        if !output.status.success() {
            let _ = std::fs::remove_file(&unfinished);
            // As for Postgres: an ordinary failure means that the file is not there, a signal or a
            // shell error that the command is broken.
            return match output.status.code() {
                Some(1..=125) => Ok(false),
                _ => Err(refuse(format!(
                    "the command failed with {}: {}",
                    output.status,
                    text_of(&output)
                ))),
            };
        }
        match std::fs::metadata(&unfinished) {
            Err(_) => Ok(false),
            Ok(metadata) if !name.contains('.') && metadata.len() != self.segment_bytes => {
                Err(refuse(format!(
                    "the command made {name} of {} bytes, a segment has {}",
                    metadata.len(),
                    self.segment_bytes
                )))
            }
            Ok(_) => {
                std::fs::rename(&unfinished, staged).map_err(|source| RewindError::Copy {
                    path: staged.to_owned(),
                    source,
                })?;
                Ok(true)
            }
        }
    }

    /// The timelines that lead to the newest one, newest first: what `recovery_target_timeline =
    /// latest` follows.
    fn timelines(&mut self, backup_timeline: u32) -> Result<Vec<Timeline>, RewindError> {
        let mut newest = backup_timeline;
        while self.fetch(&format!("{:08X}.history", newest + 1))? {
            newest += 1;
        }
        if newest == backup_timeline {
            return Ok(vec![Timeline {
                id: backup_timeline,
                begin: Lsn(0),
            }]);
        }
        let path = self.staging.join(format!("{newest:08X}.history"));
        let text =
            std::fs::read_to_string(&path).map_err(|source| RewindError::Copy { path, source })?;
        let timelines = parse_history(&text, newest);
        if !timelines
            .iter()
            .any(|timeline| timeline.id == backup_timeline)
        {
            return Err(RewindError::Archive {
                archive: self.shown(),
                reason: format!(
                    "its newest timeline, {newest}, does not descend from that of the backup, {backup_timeline}"
                ),
            });
        }
        Ok(timelines)
    }
}

/// `PARENT<tab>SWITCH LSN<tab>REASON`, oldest first. A timeline begins where its parent was left.
fn parse_history(text: &str, newest: u32) -> Vec<Timeline> {
    let mut timelines = Vec::new();
    let mut begin = Lsn(0);
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(Ok(id)), Some(Ok(switch))) =
            (words.next().map(str::parse), words.next().map(str::parse))
        else {
            continue;
        };
        timelines.push(Timeline { id, begin });
        begin = switch;
    }
    timelines.push(Timeline { id: newest, begin });
    timelines.reverse();
    timelines
}

/// `TTTTTTTTXXXXXXXXYYYYYYYY`
fn segment_name(timeline: u32, segment: u64, segment_bytes: u64) -> String {
    let per_id = 0x1_0000_0000 / segment_bytes;
    format!(
        "{timeline:08X}{:08X}{:08X}",
        segment / per_id,
        segment % per_id
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_have_the_names_that_postgres_gives_them() {
        assert_eq!(segment_name(1, 2, 16 << 20), "000000010000000000000002");
        assert_eq!(
            segment_name(0x1F, 0x1_0000, 16 << 20),
            "0000001F0000010000000000"
        );
        assert_eq!(segment_name(1, 5, 1 << 30), "000000010000000100000001");
    }

    #[test]
    fn a_history_says_where_timelines_begin() {
        let timelines = parse_history(
            "1\t0/3000000\tno recovery target specified\n\n2\t0/5000060\tbefore x\n",
            3,
        );
        let shown: Vec<_> = timelines
            .iter()
            .map(|timeline| (timeline.id, timeline.begin.0))
            .collect();
        assert_eq!(shown, [(3, 0x5000060), (2, 0x3000000), (1, 0)]);
    }
}
