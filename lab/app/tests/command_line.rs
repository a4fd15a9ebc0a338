//! The program as a whole: what it prints and how it ends.

use std::process::{Command, Output};

use lab_app::arguments::USAGE;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lab-app")).args(arguments).output().expect("the program starts")
}

#[test]
fn help_is_printed_and_is_no_failure() {
    let Output { status, stdout, stderr } = run(&["--help"]);
    assert!(status.success() && stderr.is_empty());
    assert_eq!(String::from_utf8_lossy(&stdout), format!("{USAGE}\n"));
}

#[test]
fn a_flag_that_does_not_exist_is_a_failure_that_says_what_does() {
    let Output { status, stdout, stderr } = run(&["--ports", "80"]);
    let said = String::from_utf8_lossy(&stderr);
    assert!(!status.success() && stdout.is_empty());
    assert!(said.starts_with("lab-app: ") && said.contains("--ports") && said.contains(USAGE), "{said}");
}
