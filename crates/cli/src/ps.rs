//! Passwords on the command line, and who sees it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use hindcast_pg::secret;

/// Writes stars over the passwords of this process's command line, which every user of the machine
/// sees in `ps`. `arguments` are this process's, read before; until now, a few milliseconds, they
/// showed.
pub fn hide_passwords(arguments: &[OsString]) {
    let secrets = secrets(arguments);
    if secrets.is_empty() {
        return;
    }
    if let Err(error) = overwrite(&secrets) {
        eprintln!(
            "Warning: a password on the command line shows in `ps`, and could not be hidden there: {error}. Give it in PGPASSWORD, ~/.pgpass or pg_service.conf."
        );
    }
}

/// Where the secrets are among the arguments, which lie one after the other, a zero behind each.
fn secrets(arguments: &[OsString]) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let mut at = 0;
    for argument in arguments {
        // Not all arguments are text; what is not has its length all the same.
        let text = match argument.to_str() {
            Some(text) => text.to_owned(),
            None => (argument.as_bytes().iter())
                .map(|byte| {
                    if byte.is_ascii() {
                        char::from(*byte)
                    } else {
                        '?'
                    }
                })
                .collect(),
        };
        let shifted = |range: Range<usize>| at + range.start as u64..at + range.end as u64;
        found.extend(secret::secrets(&text).into_iter().map(shifted));
        at += argument.len() as u64 + 1;
    }
    found
}

/// Through the kernel, which knows where the arguments are and lets a process write to its own
/// memory: no pointer of ours is involved.
fn overwrite(secrets: &[Range<u64>]) -> io::Result<()> {
    let unknown = || io::Error::other("the kernel does not say where the arguments are");
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name of the program is in parentheses and may hold anything; the third field is behind.
    let (_, fields) = stat.rsplit_once(')').ok_or_else(unknown)?;
    const ARG_START: usize = 48 - 3;
    let start = fields.split_whitespace().nth(ARG_START);
    let start: u64 = (start
        .and_then(|field| field.parse().ok())
        .filter(|&at| at > 0))
    .ok_or_else(unknown)?;
    let memory = File::options().write(true).open("/proc/self/mem")?;
    for secret in secrets {
        let stars = vec![b'*'; (secret.end - secret.start) as usize];
        memory.write_all_at(&stars, start + secret.start)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn places_are_counted_in_bytes_over_all_arguments() {
        let arguments = [
            OsString::from("hindcast"),
            OsString::from_vec(vec![0xff, b' ', 0xe9]),
            OsString::from("--postgres=postgres://é:pass@h/d"),
        ];
        let bytes: Vec<u8> = arguments
            .iter()
            .flat_map(|argument| [argument.as_bytes(), b"\0"].concat())
            .collect();
        let found = secrets(&arguments);
        assert_eq!(found.len(), 1);
        let place = found[0].start as usize..found[0].end as usize;
        assert_eq!(&bytes[place], b"pass");
    }
}
