//! What manifests say to agents, agents understand.

use bps_agent::stop_signal::StopSignal;
use bps_core::manifests::STOP_SIGNALS;
use clap::ValueEnum as _;

#[test]
fn agents_know_the_signals_that_are_passed_to_them() {
    let names = StopSignal::value_variants().iter().filter_map(StopSignal::to_possible_value);
    let names: Vec<String> = names.map(|value| value.get_name().to_owned()).collect();
    assert_eq!(names, STOP_SIGNALS);
}
