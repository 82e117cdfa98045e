//! `hindcast key`, and the key that a command is given.

use std::io::Write;
use std::path::{Path, PathBuf};

use hindcast_trace::{Key, KeyError, SecretKey};

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
