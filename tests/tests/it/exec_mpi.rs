//! MPI: each rank of a program is recorded by itself, and replayed without the others.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use hindcast_tests::exec::{Outcome, Scene, programs};
use hindcast_tests::{Process, program, repository};

const RANKS: usize = 4;

/// Runs the ranks with their recordings in folders of their numbers.
fn recorded(scene: &Scene, argument: &str) -> Outcome {
    let source = repository("tests/programs/mpi/ranks.c");
    let ranks = programs::compiled_with("mpicc", &source, "mpi-ranks", &[]);
    // The number of a rank is in its environment.
    let script = scene.folder().join("rank");
    let text = format!(
        "#!/bin/sh\nexec {} exec --interface mpi --record {}/$OMPI_COMM_WORLD_RANK -- {} {argument}\n",
        program("hindcast").display(),
        scene.folder().display(),
        ranks.display(),
    );
    std::fs::write(&script, text).expect("the scene's folder is writable");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&script, executable).expect("it is ours");
    let mut mpirun = Command::new("mpirun");
    mpirun
        .args([
            "--allow-run-as-root",
            "--oversubscribe",
            "--mca",
            "btl_base_warn_component_unused",
            "0",
        ])
        .args(["-n", &RANKS.to_string()])
        .arg(&script);
    let process = Process::start("mpirun", mpirun, scene.folder());
    Outcome::of(process, Duration::from_secs(120))
}

fn replayed(scene: &Scene, rank: usize) -> Outcome {
    let mut replay = Command::new(program("hindcast"));
    replay
        .args(["exec", "--replay"])
        .arg(scene.folder().join(rank.to_string()));
    let process = Process::start("replay", replay, scene.folder());
    Outcome::of(process, Duration::from_secs(60))
}

/// The line of a rank.
fn line(text: &str, rank: usize) -> &str {
    let begin = format!("rank {rank} of {RANKS}: ");
    let mut lines = text.lines().filter(|line| line.starts_with(&begin));
    lines
        .next()
        .unwrap_or_else(|| panic!("no line of rank {rank}:\n{text}"))
}

#[test]
fn each_rank_is_replayed_without_the_others() {
    let scene = Scene::new("mpi");
    let recorded = recorded(&scene, "");
    recorded.assert_code(0);
    let text = recorded.text();
    for rank in 0..RANKS {
        let replayed = replayed(&scene, rank);
        replayed.assert_code(0);
        assert_eq!(replayed.text().trim_end(), line(&text, rank));
    }
}

#[test]
fn a_window_ends_the_recording_and_not_the_program() {
    let scene = Scene::new("mpi-window");
    let recorded = recorded(&scene, "window");
    recorded.assert_code(0);
    let text = recorded.text();
    (0..RANKS).for_each(|rank| assert!(!line(&text, rank).is_empty()));
    recorded.assert_said(&["lets other ranks write into its memory (an MPI window)"]);
    replayed(&scene, 0).assert_said(&["the recording ends at", "MPI window"]);
}
