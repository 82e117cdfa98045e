//! `hindcast key`, and the key that a command is given.

use std::io::Write;
use std::path::{Path, PathBuf};

use hindcast_trace::{Key, KeyError, PublicKey, SecretKey};

use crate::args::{KeyAction, TraceArg};
use crate::error::{CliError, Exit};

const VARIABLE: &str = "HINDCAST_KEY";

pub fn run(action: &KeyAction) -> Result<Exit, CliError> {
    match action {
        KeyAction::New { file } => new(file),
        KeyAction::Show { file } => show(file),
    }
}

/// From the file that `--key` or the environment names. The environment may hold the key itself;
/// an argument may not, since every user sees the arguments of a process.
pub fn given(args: &TraceArg) -> Result<Option<Key>, CliError> {
    let Some(given) = &args.key else {
        return Ok(None);
    };
    let text = given.to_str().filter(|text| text.starts_with("hindcast-"));
    let from_environment =
        std::env::var_os(VARIABLE).is_some_and(|value| value == given.as_os_str());
    let key = match text {
        Some(text) if from_environment => Key::parse(VARIABLE, text),
        Some(_) if !given.exists() => {
            return Err(CliError::usage(
                "--key: a file is wanted; every user of this machine could see a key among the arguments",
            )
            .hint(format!("put the key into a file, or into {VARIABLE}")));
        }
        _ => Key::read(given),
    };
    key.map(Some).map_err(unusable)
}

/// Where the key is that opens what redaction takes out of requests.
fn secrets_file(args: &TraceArg) -> Option<PathBuf> {
    if let Some(given) = &args.secrets_key {
        return Some(given.clone());
    }
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let config = set("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.or_else(|| set("HOME").map(|home| Path::new(&home).join(".config")));
    Some(config?.join("hindcast").join("secrets.key"))
}

/// The key that opens what was taken out of requests. `None`: there is none here.
pub fn of_secrets(args: &TraceArg) -> Result<Option<SecretKey>, CliError> {
    // A verdict that misses it says so.
    let Some(file) = secrets_file(args).filter(|file| file.exists()) else {
        return Ok(None);
    };
    let key = Key::read(&file).map_err(unusable)?;
    Ok(key.secret().cloned())
}

/// Who can read what is taken out of requests: who reads the recording, if that is encrypted, else
/// who has the key file, which is made here if it is not there.
pub fn for_secrets(args: &TraceArg) -> Result<PublicKey, CliError> {
    if let Some(key) = given(args)? {
        return Ok(key.public());
    }
    let file = secrets_file(args).ok_or_else(|| {
        CliError::usage("HOME is not set, so there is no place for the key of secrets")
            .hint("name a file with --secrets-key, or keep no secrets with --drop-secrets")
    })?;
    if !file.exists() {
        make_for_secrets(&file)?;
    }
    let key = Key::read(&file).map_err(unusable)?;
    Ok(key.public())
}

fn make_for_secrets(file: &Path) -> Result<(), CliError> {
    let secret = SecretKey::generate().map_err(unusable)?;
    let text = format!(
        "# Opens what `hindcast record` takes out of requests, for replays on this machine.\n{}\n",
        secret.to_line()
    );
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.exists()) {
        let made = hindcast_private::folders(folder);
        made.map_err(|error| no_key_file(file, &error))?;
    }
    // Under another name first: a recorder that starts at the same time reads all of it or makes
    // its own, and one of the two stays.
    let new = file.with_extension(format!("{}.new", std::process::id()));
    let made = hindcast_private::write(&new, text).and_then(|()| {
        let linked = std::fs::hard_link(&new, file);
        std::fs::remove_file(&new)?;
        linked.or_else(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => Ok(()),
            _ => Err(error),
        })
    });
    made.map_err(|error| no_key_file(file, &error))
}

fn no_key_file(file: &Path, error: &std::io::Error) -> CliError {
    let message = format!("cannot write the key of secrets, {}", file.display());
    CliError::because(message, error)
        .hint("name a file with --secrets-key, or keep no secrets with --drop-secrets")
}

fn unusable(error: KeyError) -> CliError {
    let hint = match &error {
        KeyError::Read { .. } => "check the path; `hindcast key new` makes a key file",
        KeyError::NoKey { .. } | KeyError::Mistyped { .. } => {
            "use a file that `hindcast key new` made, unchanged"
        }
        KeyError::NoRandom => "try again",
    };
    CliError::because("the key cannot be used", &error).hint(hint)
}

fn new(file: &Path) -> Result<Exit, CliError> {
    let secret = SecretKey::generate().map_err(unusable)?;
    let public = secret.public();
    let id = public.id();
    let mut public_file = file.as_os_str().to_owned();
    public_file.push(".pub");
    let public_file = PathBuf::from(public_file);
    let text = format!(
        "# Secret key {id} of hindcast recordings. Without it they cannot be read.\n{}\n",
        secret.to_line()
    );
    create(file, &text)?;
    let text =
        format!("# Public key {id} of hindcast recordings: records, and cannot read.\n{public}\n");
    create(&public_file, &text)?;
    println!("Key {id}");
    println!("  secret key    {}", file.display());
    println!("  public key    {}", public_file.display());
    println!(
        "Record with the public key, and keep the secret one elsewhere: without it nothing that is recorded can be read."
    );
    Ok(Exit::Success)
}

/// A key file is never written over: what was recorded with the old key would be lost.
fn create(path: &Path, text: &str) -> Result<(), CliError> {
    let file = hindcast_private::options()
        .write(true)
        .create_new(true)
        .open(path);
    let written = file.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| {
        CliError::because(format!("cannot write {}", path.display()), &error)
            .hint("choose a file that does not exist yet")
    })
}

fn show(file: &Path) -> Result<Exit, CliError> {
    let key = Key::read(file).map_err(unusable)?;
    let kind = match key.secret() {
        Some(_) => "secret: records and reads",
        None => "public: records",
    };
    println!("Key {}, {kind}", key.id());
    println!("{}", key.public());
    Ok(Exit::Success)
}
