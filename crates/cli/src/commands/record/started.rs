//! Programs that only start another one and wait for it.
//!
//! They leave signals to a terminal, which sends them to all: `npm start` and a shell's script hear
//! one that is sent to them alone, and what they have started does not. And it does not matter
//! whether the tap can be loaded into them.

use std::ffi::OsString;
use std::path::Path;

const SHELLS: [&str; 7] = ["sh", "dash", "bash", "ash", "zsh", "ksh", "busybox"];
const STARTERS: [&str; 7] = ["npm", "npx", "pnpm", "pnpx", "yarn", "yarnpkg", "make"];
/// Into these nothing is loaded, and what they start is looked at by itself.
const SWITCHERS: [&str; 4] = ["su", "runuser", "sudo", "doas"];
/// Those of which only this command does.
const COMMANDS: [(&str, &str); 2] = [("go", "run"), ("uv", "run")];
/// With which these are run.
const SCRIPT: [&str; 4] = [".js", ".cjs", ".mjs", "-cli"];

/// Whether a command only starts another program.
pub fn starts_another(command: &[OsString]) -> bool {
    let words = command.iter().map(|word| word.to_str().unwrap_or_default());
    is_starter(words)
}

/// A process, and what it has started, as long as each only waits for the next.
pub fn with_started(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    while let Some(&last) = all.last()
        && only_waits(last)
        && let [started] = children(last)[..]
        && !all.contains(&started)
    {
        all.push(started);
    }
    all
}

fn only_waits(pid: u32) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line);
    let mut words = line.split(['\0', ' ']);
    let is_switcher = words.clone().next().is_some_and(is_switcher);
    is_switcher || is_starter(&mut words)
}

/// Whether a program runs another one as another user, in a session of its own or not.
fn is_switcher(word: &str) -> bool {
    SWITCHERS.contains(&name_of(word))
}

fn name_of(word: &str) -> &str {
    let name = Path::new(word).file_name().and_then(|name| name.to_str());
    name.unwrap_or(word).trim_start_matches('-')
}

/// By the words of its command, of which some put others in their place.
fn is_starter<'a>(words: impl Iterator<Item = &'a str>) -> bool {
    let mut names = words.map(|word| {
        let mut name = name_of(word);
        for end in SCRIPT {
            name = name.strip_suffix(end).unwrap_or(name);
        }
        name
    });
    let is_known = |name: &str| SHELLS.contains(&name) || STARTERS.contains(&name);
    let (Some(first), second) = (names.next(), names.next()) else {
        return false;
    };
    let is_run = |pair: &(&str, &str)| pair.0 == first && Some(pair.1) == second;
    is_known(first)
        || first == "node" && second.is_some_and(|name| STARTERS.contains(&name))
        || COMMANDS.iter().any(is_run)
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let lists: Vec<String> = lists.collect();
    let pids = lists.iter().flat_map(|list| list.split_whitespace());
    pids.filter_map(|pid| pid.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: bool) {
        assert_eq!(is_starter(line.split(' ')), expected, "{line}");
    }

    #[test]
    fn who_only_starts_others_is_known() {
        check("npm start", true);
        check("npm run dev", true);
        check("node /usr/lib/node_modules/npm/bin/npm-cli.js start", true);
        check("/usr/bin/node /usr/bin/yarn.js dev", true);
        check("/bin/sh -c tsx server.ts", true);
        check("-bash", true);
        check("bash ./start.sh", true);
        check("node server.js", false);
        check("node", false);
        check("go run ./cmd/server", true);
        check("go", false);
        check("uv run uvicorn shop:app", true);
        check("", false);
        check("python manage.py runserver", false);
        check("gunicorn shop.wsgi", false);
    }

    #[test]
    fn who_runs_another_as_another_user_is_known() {
        assert!(is_switcher("/usr/bin/sudo"));
        assert!(is_switcher("su"));
        assert!(!is_switcher("sum"));
    }

    #[test]
    fn what_a_shell_has_started_is_found() {
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "sleep 60; true"])
            .spawn()
            .unwrap();
        let pid = shell.id();
        let begun = std::time::Instant::now();
        let found = loop {
            let found = with_started(pid);
            if found.len() > 1 || begun.elapsed().as_secs() > 10 {
                break found;
            }
        };
        assert_eq!(found.len(), 2, "{found:?}");
        for pid in found.into_iter().rev() {
            // SAFETY: a plain system call, on processes that this test has started.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        }
        shell.wait().unwrap();
    }
}
