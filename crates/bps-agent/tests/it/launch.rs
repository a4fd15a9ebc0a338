//! The last step before the application of an agent with several seats: its link to the state leads to the acting seat.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use bps_agent::launch::ACTIVE_LINK;
use bps_agent::seats::link::ActiveLink;
use bps_protocol::SeatNumber;

/// Runs a script as the agent runs its application, with the state of this seat.
fn launch(directory: &Path, seat: u8, script: &str) -> Output {
    let link = ActiveLink { directory: directory.to_owned(), seat: SeatNumber(seat) };
    Command::new(env!("CARGO_BIN_EXE_bps-agent"))
        .args(["launch", &std::process::id().to_string(), "--", "sh", "-c", script])
        .env(ACTIVE_LINK, link.text().unwrap())
        .current_dir(directory)
        .output()
        .unwrap()
}

#[test]
fn an_application_finds_the_state_of_the_acting_seat_when_it_starts_and_nothing_of_the_agents() {
    let folder = tempfile::tempdir().unwrap();
    for seat in [1, 0] {
        fs::create_dir_all(folder.path().join(format!("seats/{seat}"))).unwrap();
        let output = launch(folder.path(), seat, r#"readlink active; echo "<$BPS_ACTIVE_LINK>""#);
        assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("seats/{seat}\n<>\n"));
        assert_eq!(output.status.code(), Some(0));
    }
}

#[test]
fn an_application_does_not_start_where_something_else_has_the_name_of_the_link() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("active")).unwrap();
    let output = launch(folder.path(), 0, "echo started");
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(1), vec![]), "{told}");
    assert!(told.contains("point the link"), "{told}");
}
