//! The tables of the experiments.

use serde_json::{Value, json};

use super::clusters::{Experiment, PaperScores};
use super::figures::Figures;
use super::{COMPARED, Measured, profiles};
use crate::bench::summary::aligned;

/// The table of one experiment, with the paper's figures below.
pub(super) fn table(experiment: &Experiment, measured: &Measured) -> String {
    let title = format!("{}, {} Pods", experiment.name, experiment.pods);
    let header = [
        title.as_str(),
        "n",
        "spread score",
        "least",
        "of best",
        "std of Pods",
        "fullest CPU",
        "std of CPU",
        "big Pods left",
    ];
    let mut lines = vec![header.map(str::to_owned)];
    for (compared, figures) in COMPARED.iter().zip(measured) {
        lines.push(line(compared.label, figures));
    }
    aligned(&lines) + &verdict(experiment.paper, measured)
}

fn line(label: &str, figures: &[Figures]) -> [String; 9] {
    let median = |of: fn(&Figures) -> f64| median(figures.iter().map(of));
    let least = figures.iter().map(|one| one.spread).fold(f64::INFINITY, f64::min);
    let share = median(|one| 100.0 * one.spread / one.best_spread);
    [
        label.to_owned(),
        figures.len().to_string(),
        number(median(|one| one.spread)),
        number(least),
        format!("{share:.1} %"),
        format!("{:.1}", median(|one| one.count_deviation)),
        format!("{:.0} %", median(|one| one.fullest_percent)),
        format!("{:.1}", median(|one| one.use_deviation)),
        format!("{:.0}", median(|one| f64::from(u32::try_from(one.big_pods).unwrap_or(u32::MAX)))),
    ]
}

/// How often the refined score was better than the stock scheduler, trial by trial, beside the paper's ratio.
fn verdict(paper: Option<PaperScores>, measured: &Measured) -> String {
    let of = |profile: &str| {
        let line = COMPARED.iter().position(|one| one.profile == profile).expect("it is compared");
        measured[line].iter().map(|one| one.spread)
    };
    let pairs: Vec<(f64, f64)> = of(profiles::STOCK).zip(of(profiles::RBRA)).collect();
    let better = pairs.iter().filter(|(stock, rbra)| rbra > stock).count();
    let ratio = median(pairs.iter().map(|(stock, rbra)| rbra / stock));
    let ours = format!(
        "bps-rbra above the stock scheduler in {better} of {} trials, median ratio {ratio:.2}",
        pairs.len()
    );
    let theirs = paper.map_or_else(String::new, |PaperScores { default, rbra }| {
        format!("; paper: {} and {}, ratio {:.2}", number(default), number(rbra), rbra / default)
    });
    format!("{ours}{theirs}\n")
}

/// The spread scores of each trial, by line.
pub(super) fn raw(measured: &Measured) -> Value {
    let line = |figures: &Vec<Figures>| figures.iter().map(|one| one.spread).collect::<Vec<_>>();
    let of = COMPARED
        .iter()
        .zip(measured)
        .map(|(compared, figures)| (compared.label.to_owned(), json!(line(figures))));
    Value::Object(of.collect())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    crate::bench::summary::Figures::of(&values).map_or(f64::NAN, |figures| figures.median)
}

/// A large number that can be read.
fn number(value: f64) -> String {
    if value < 1e6 { format!("{value:.0}") } else { format!("{value:.3e}") }
}
