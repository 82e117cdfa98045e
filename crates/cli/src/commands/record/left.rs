//! What goes on after the command that started it has ended, as a daemon does.
//!
//! The recording ends with the command. Nobody would notice that what it has started is not
//! recorded any more.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// So many are named.
const NAMED: usize = 3;

/// What the end of a recording says, if there are such. `preload`: the folder of what was loaded
/// into the service.
pub fn remark(preload: &Path) -> Option<String> {
    let left = with_a_file_of(preload);
    let subject = match left.len() {
        0 => return None,
        1 => "a process of the service goes on, and it is",
        _ => "processes of the service go on, and they are",
    };
    let names = left.iter().map(|(pid, name)| format!("{name} ({pid})"));
    let mut named = names.take(NAMED).collect::<Vec<_>>().join(", ");
    if let more @ 1.. = left.len().saturating_sub(NAMED) {
        named += &format!(" and {more} more");
    }
    Some(format!(
        "{subject} not recorded any more: {named}. The command that was recorded starts them and ends. Record one that \
         stays in the foreground: `apachectl -D FOREGROUND`, `pm2-runtime`, no `--daemon`"
    ))
}

/// Number and name of each process that has a file of this folder in its memory.
fn with_a_file_of(folder: &Path) -> Vec<(u32, String)> {
    let folder = folder.as_os_str().as_bytes();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ours = std::process::id();
    let found = processes.filter_map(|process| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        let maps = fs::read(process.path().join("maps")).ok()?;
        let has_it = maps.windows(folder.len()).any(|part| part == folder);
        let name = fs::read_to_string(process.path().join("comm")).ok()?;
        (has_it && pid != ours).then(|| (pid, name.trim_end().to_owned()))
    });
    let mut found: Vec<(u32, String)> = found.collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn who_has_a_file_of_the_folder_in_memory_is_named() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(remark(folder.path()), None);
        let program = folder.path().join("sleeps");
        fs::copy("/usr/bin/tail", &program).unwrap();
        let mut child = Command::new(&program)
            .args(["-c", "+1", "-f", "/proc/version", "/dev/null"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // It runs once it has said something.
        let said = child.stdout.as_mut().unwrap().read(&mut [0; 1]).unwrap();
        let named = remark(folder.path()).unwrap_or_default();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(said, 1);
        let expected = format!("not recorded any more: sleeps ({})", child.id());
        assert!(named.contains(&expected), "{named}");
    }
}
