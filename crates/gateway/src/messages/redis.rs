//! The serialization protocol of Redis, versions 2 and 3.

use super::Malformed;

/// Where the first message ends; `None` if it goes on in bytes that are still to come.
pub fn end(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let (mut at, mut missing) = (0, 1u64);
    while missing > 0 {
        let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) else {
            return Ok(None);
        };
        let Some(line) = memchr::memchr(b'\n', rest) else {
            return Ok(None);
        };
        let (kind, text) = (rest[0], rest[1..=line].trim_ascii_end());
        at += line + 1;
        missing -= 1;
        match kind {
            b'$' | b'=' | b'!' => {
                if let Ok(length) = usize::try_from(number(text)?) {
                    // And the end of its line.
                    at = at.checked_add(length + 2).ok_or(Malformed)?;
                    if at > bytes.len() {
                        return Ok(None);
                    }
                }
            }
            b'*' | b'~' | b'>' => missing += u64::try_from(number(text)?).unwrap_or(0),
            b'%' => missing += 2 * u64::try_from(number(text)?).unwrap_or(0),
            // What it is about follows.
            b'|' => missing += 1 + 2 * u64::try_from(number(text)?).unwrap_or(0),
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => {}
            _ => return Err(Malformed),
        }
    }
    Ok(Some(at))
}

fn number(text: &[u8]) -> Result<i32, Malformed> {
    let text = std::str::from_utf8(text).map_err(|_| Malformed)?;
    text.parse().map_err(|_| Malformed)
}

/// The strings of a command.
pub fn words(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        loop {
            let line = memchr::memchr(b'\n', rest)?;
            let (head, after) = (rest[..line].trim_ascii_end(), &rest[line + 1..]);
            rest = after;
            if let Some(length) = head.strip_prefix(b"$") {
                let length = usize::try_from(number(length).ok()?).ok()?;
                let word = rest.get(..length)?;
                rest = rest.get(length + 2..).unwrap_or_default();
                return Some(word);
            }
        }
    })
}

/// Of a command, in lower case.
pub fn name(command: &[u8]) -> String {
    let first = words(command).next().unwrap_or_default();
    String::from_utf8_lossy(first).to_ascii_lowercase()
}

/// Commands follow that run together.
pub fn begins_together(name: &str) -> bool {
    name == "multi"
}

pub fn ends_together(name: &str) -> bool {
    matches!(name, "exec" | "discard")
}

/// How many messages answer a command: one for each channel that it is about.
pub fn answers(command: &[u8]) -> usize {
    match name(command).ends_with("subscribe") {
        true => words(command).skip(1).count().max(1),
        false => 1,
    }
}

/// Whether a message comes because somebody published something, and not as an answer.
pub fn is_published(message: &[u8]) -> bool {
    let is_list = matches!(message.first(), Some(b'*' | b'>'));
    let first = words(message).next().filter(|_| is_list);
    let is_text = message.iter().position(|&byte| byte == b'\n');
    let is_text = is_text.and_then(|line| message.get(line + 1)) == Some(&b'$');
    let count = words(message).take(5).count();
    is_text
        && match first {
            Some(b"message" | b"smessage") => count == 3,
            Some(b"pmessage") => count == 4,
            _ => false,
        }
}

/// The channel, or the pattern, that a published message came by.
pub fn channel(message: &[u8]) -> Option<&[u8]> {
    words(message).nth(1)
}

/// The messages of some bytes, one after the other.
pub fn each(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let end = end(bytes).ok().flatten()?;
        let (message, rest) = bytes.split_at(end);
        bytes = rest;
        Some(message)
    })
}

/// The same commands where each that runs a script names it by its hash; `None` where none does.
pub fn scripts_by_hash(commands: &[u8]) -> Option<Vec<u8>> {
    let runs = |command: &[u8]| name(command).starts_with("eval");
    if !each(commands).any(runs) {
        return None;
    }
    let mut all = Vec::with_capacity(commands.len());
    for command in each(commands) {
        let mut words: Vec<Vec<u8>> = words(command).map(<[u8]>::to_vec).collect();
        let (by_hash, is_text) = match name(command).as_str() {
            "eval" => ("evalsha", true),
            "eval_ro" => ("evalsha_ro", true),
            "evalsha" => ("evalsha", false),
            "evalsha_ro" => ("evalsha_ro", false),
            _ => {
                all.extend_from_slice(command);
                continue;
            }
        };
        words[0] = by_hash.into();
        if let Some(script) = words.get_mut(1).filter(|_| is_text) {
            let hash = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, script);
            let digits = hash.as_ref().iter().map(|byte| format!("{byte:02x}"));
            *script = digits.collect::<String>().into_bytes();
        }
        all.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            all.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            all.extend_from_slice(&word);
            all.extend_from_slice(b"\r\n");
        }
    }
    Some(all)
}

/// Whether a script was not known, which its client answers by sending it.
pub fn asks_for_script(answer: &[u8]) -> bool {
    answer.starts_with(b"-NOSCRIPT")
}

/// What commands are about, without the values that they bring: their names and keys.
pub fn about(commands: &[u8]) -> Vec<u8> {
    let mut about = Vec::new();
    for command in each(commands) {
        let name = name(command);
        let words: Vec<&[u8]> = words(command).skip(1).collect();
        let keys: Vec<&[u8]> = match name.as_str() {
            // Clients look into their queues in turn.
            "blpop" | "brpop" | "bzpopmin" | "bzpopmax" => {
                let mut keys = words[..words.len().saturating_sub(1)].to_vec();
                keys.sort_unstable();
                keys
            }
            "xread" | "xreadgroup" => {
                let mut from = words.iter();
                from.find(|word| word.eq_ignore_ascii_case(b"streams"));
                from.take(1).copied().collect()
            }
            "eval" | "evalsha" | "fcall" => {
                let keys = words.get(1).and_then(|count| number(count).ok());
                let keys = usize::try_from(keys.unwrap_or(0)).unwrap_or(0);
                words.into_iter().take(2 + keys).collect()
            }
            _ => words.into_iter().take(1).collect(),
        };
        about.extend_from_slice(name.as_bytes());
        for key in keys {
            about.push(b' ');
            about.extend_from_slice(key);
        }
        about.push(b'\n');
    }
    about
}

/// The same where numbers and identifiers are all alike.
pub fn masked(about: &[u8]) -> Vec<u8> {
    const IDENTIFIER_MIN: usize = 8;
    let mut masked = Vec::with_capacity(about.len());
    let mut rest = about;
    while let Some(&first) = rest.first() {
        let is_part = |byte: &u8| byte.is_ascii_hexdigit() || *byte == b'-';
        let part = rest.iter().take_while(|byte| is_part(byte)).count();
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let length = match part >= IDENTIFIER_MIN {
            true => part,
            false => digits,
        };
        masked.push(if length > 0 { b'#' } else { first });
        rest = &rest[length.max(1)..];
    }
    masked
}

/// Whether all of the commands put something there, so that what they bring decides nothing of
/// what is answered.
pub fn brings(commands: &[u8]) -> bool {
    const COMMANDS: [&str; 32] = [
        "multi",
        "exec",
        "set",
        "setex",
        "psetex",
        "setnx",
        "getset",
        "append",
        "lpush",
        "rpush",
        "lpushx",
        "rpushx",
        "lrem",
        "hset",
        "hmset",
        "hsetnx",
        "hdel",
        "sadd",
        "srem",
        "zadd",
        "zrem",
        "xadd",
        "publish",
        "spublish",
        "expire",
        "pexpire",
        "expireat",
        "pexpireat",
        "eval",
        "evalsha",
        "fcall",
        "zremrangebyscore",
    ];
    each(commands).all(|command| COMMANDS.contains(&name(command).as_str()))
}

/// Whether a command waits for what is not there.
pub fn waits(command: &[u8]) -> bool {
    const COMMANDS: [&str; 9] = [
        "blpop",
        "brpop",
        "blmove",
        "brpoplpush",
        "blmpop",
        "bzpopmin",
        "bzpopmax",
        "bzmpop",
        "wait",
    ];
    let name = name(command);
    let blocks = || words(command).any(|word| word.eq_ignore_ascii_case(b"block"));
    COMMANDS.contains(&name.as_str()) || (name.starts_with("xread") && blocks())
}

/// Whether a command takes what it finds away, or may do so.
pub fn takes(command: &[u8]) -> bool {
    const COMMANDS: [&str; 12] = [
        "lpop",
        "rpop",
        "lmove",
        "rpoplpush",
        "lmpop",
        "zpopmin",
        "zpopmax",
        "spop",
        "xreadgroup",
        "eval",
        "evalsha",
        "fcall",
    ];
    waits(command) || COMMANDS.contains(&name(command).as_str())
}

/// Whether nothing was found.
pub fn is_nothing(answer: &[u8]) -> bool {
    matches!(
        answer,
        b"$-1\r\n" | b"*-1\r\n" | b"*0\r\n" | b"_\r\n" | b"%0\r\n" | b"~0\r\n"
    )
}
