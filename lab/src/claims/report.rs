//! What is printed once all claims were held: how long each took, and each lane. Pure.

use std::cmp::Reverse;
use std::time::Duration;

use super::lanes::Lane;

/// A claim that was held.
#[derive(Clone, Debug)]
pub struct Held {
    /// What is claimed.
    pub name: &'static str,
    /// In which lane it was held.
    pub lane: Lane,
    /// When it was begun, since the first claim was.
    pub began: Duration,
    /// When it ended, since the first claim was begun.
    pub ended: Duration,
    /// What was wrong.
    pub problem: Option<String>,
}

impl Held {
    /// How long it was held.
    pub fn took(&self) -> Duration {
        self.ended.saturating_sub(self.began)
    }
}

/// Two tables, seconds of each claim and of each lane, and the last lines, which programs read.
pub fn report(held: &[Held]) -> String {
    let mut longest: Vec<&Held> = held.iter().collect();
    longest.sort_by_key(|claim| Reverse(claim.took()));

    let mut lines = vec!["seconds  lane     claim".to_owned()];
    lines.extend(longest.into_iter().map(of_claim));
    lines.push("\nlane     claims  seconds  from first to last".to_owned());
    lines.extend(Lane::ALL.into_iter().filter_map(|lane| of_lane(lane, held)));
    lines.push(verdict(held));
    lines.join("\n")
}

fn of_claim(claim: &Held) -> String {
    let (seconds, lane) = (claim.took().as_secs_f64(), format!("{:?}", claim.lane));
    format!("{seconds:>7.1}  {lane:<7}  {}", claim.name)
}

/// One line of the second table; `None` if no claim of the lane was held.
fn of_lane(lane: Lane, held: &[Held]) -> Option<String> {
    let own = || held.iter().filter(|claim| claim.lane == lane);
    let (began, ended) = (own().map(|claim| claim.began).min()?, own().map(|claim| claim.ended).max()?);
    let seconds: Duration = own().map(Held::took).sum();
    let (count, on_the_clock) = (own().count(), ended.saturating_sub(began));
    let name = format!("{lane:?}");
    Some(format!(
        "{name:<7}  {count:>6}  {:>7.1}  {:>18.1}",
        seconds.as_secs_f64(),
        on_the_clock.as_secs_f64()
    ))
}

fn verdict(held: &[Held]) -> String {
    let failed = held.iter().filter(|claim| claim.problem.is_some()).count();
    let passed = held.len() - failed;
    format!("\n{passed} of {} claims hold\n{passed} passed, {failed} failed", held.len())
}
