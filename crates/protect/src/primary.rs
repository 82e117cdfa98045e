//! The machine on which the program is started.

use std::path::PathBuf;
use std::time::Duration;

use hindcast_exec::apart::{Leader, Leading};
use hindcast_exec::recording::Recording;
use hindcast_exec::run::RecordOptions;
use hindcast_exec::watch::Signals;

use crate::book::Book;
use crate::channel::run_first;
use crate::doors::Doors;
use crate::error::{ProtectError, system};
use crate::introduce::{Introduction, introduce};
use crate::message::Standing;
use crate::network;
use crate::queue::Queue;
use crate::running::{Protector, Running, Runs};
use crate::terms::{Notice, Outcome, Rules, Taken, Terms, clean_up};
use crate::wire::Arriving;

#[derive(Clone, Debug)]
pub struct PrimaryOptions {
    /// The backup: host and port.
    pub to: String,
    pub terms: Terms,
    /// The device that gets the address; `None`: the one through which the backup is reached.
    pub device: Option<String>,
    /// Where a new backup is attached, and the status is asked for.
    pub listen: Option<String>,
    /// What to run. Its folder is for the log.
    pub record: RecordOptions,
}

/// Runs a program under the protection of a backup.
pub fn run(options: &PrimaryOptions, say: &mut dyn FnMut(Notice)) -> Result<Outcome, ProtectError> {
    let terms = &options.terms;
    let address = &terms.address;
    network::remove_left_rules(address)?;
    run_first();
    let doors = match &options.listen {
        Some(listen) => Some(Doors::open(listen, terms.key.as_ref())?),
        None => None,
    };
    let leading = Leading::prepare(&options.record)?;
    let files = leading.files()?;
    let (channel, local) = introduce(Introduction {
        to: options.to.clone(),
        key: terms.key.clone(),
        address: address.clone(),
        runs: false,
        files: files.clone(),
        checkpoint: None,
    })?;
    let device = match &options.device {
        Some(device) => device.clone(),
        None => network::device_of(local)?,
    };

    let outgoing = Queue::open(terms.queue).map_err(ProtectError::NoQueue)?;
    let arriving = Arriving::at(address.ip).map_err(system("looking at what comes"))?;
    let rules = Rules::queue(terms)?;
    let taken = Taken::take(address, &device)?;
    let _ = network::announce(address, &device);
    let signals = Signals::take_over().map_err(system("taking over signals"))?;
    let leader: Leader = leading.start(clean_up(terms, &device))?;
    let folder: PathBuf = options.record.folder.clone();
    let program = Recording::open(&folder).map_err(hindcast_exec::error::ExecError::from)?;
    let runs = Runs {
        program: program.path.lossy().into_owned(),
        standing: Standing::Runs,
        took: None::<Duration>,
        files,
        folder,
        from: None,
        is_recorded: true,
    };
    let protector = Protector {
        channel,
        rules,
        to: options.to.clone(),
    };
    let mut running = Running::new(terms, runs, leader, (arriving, Book::default()), taken);
    running.is_reached_at(doors);
    running.begin_under(protector, outgoing, say);
    Ok(running.run(&signals, say))
}
