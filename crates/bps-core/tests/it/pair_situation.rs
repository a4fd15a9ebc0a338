//! Reads a scenario file of a group: its Pods and pairs as short lines, and the plan that is expected.
//!
//! Anything that is not understood is an error that names the line.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bps_core::model::{NodeName, Role};
use bps_core::pairing::{
    Forsaken, Group, HaState, LevelText, Lost, Pair, PairAction, Pod, Shown, Silence, StandbyPlace,
    Uncovered, VACANT, plan, testing,
};
use bps_protocol::{AgentId, BootTime, Hold, Moment, Replacement, Timing};
use serde::Deserialize;

/// One situation of a group and the whole plan for it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct PairScenario {
    pub(crate) title: String,
    pub(crate) why: String,
    /// How many pairs there shall be, if the group says so.
    wanted: Option<usize>,
    /// In how many pairs a Pod may stand by; in one if the file does not say.
    standby_for: Option<usize>,
    #[serde(default)]
    paused: bool,
    #[serde(default)]
    highest_term: u32,
    /// Since when there are more pairs than Pods can fill, and since when a Pod is alone.
    surplus_for: Option<String>,
    alone_for: Option<String>,
    #[serde(default)]
    leaving_nodes: BTreeSet<String>,
    /// Where a standby may be; another domain is better if the file does not say.
    standby: Option<String>,
    /// Pods by their names, which are one letter each.
    #[serde(default)]
    pods: BTreeMap<char, String>,
    /// Pairs by their numbers.
    #[serde(default)]
    pairs: BTreeMap<u32, String>,
    /// Pairs whose Leases another writer deleted, and those whose wait is over.
    #[serde(default)]
    lost: BTreeMap<u32, String>,
    #[serde(default)]
    remembered: BTreeMap<u32, String>,
    /// Pairs whose Leases cannot be read.
    #[serde(default)]
    unreadable: BTreeMap<u32, String>,
    #[serde(default)]
    pub(crate) steps: Vec<String>,
    #[serde(default)]
    pub(crate) holds: Vec<String>,
    /// Pairs whose addresses are unready.
    #[serde(default)]
    pub(crate) draining: BTreeSet<u32>,
    pub(crate) look_again: Option<String>,
}

const README: &str = "see tests/scenarios/pairs/README.md";

/// Reads one file.
pub(crate) fn read(text: &str) -> Result<PairScenario, String> {
    serde_saphyr::from_str(text).map_err(|error| error.to_string())
}

/// Uid of the Pod of this name.
pub(crate) fn id(name: char) -> AgentId {
    AgentId(u128::from(name.to_ascii_lowercase()) - u128::from('a') + 1)
}

/// Name of the Pod with this uid.
pub(crate) fn name(id: AgentId) -> String {
    let letter = u8::try_from(id.0).ok().and_then(|number| b'a'.checked_add(number)?.checked_sub(1));
    letter.map_or_else(|| id.0.to_string(), |letter| char::from(letter).to_string())
}

impl PairScenario {
    /// The group that the file describes, at [`testing::now`].
    pub(crate) fn group(&self) -> Result<Group, String> {
        let mut group = Group {
            pairs_wanted: self.wanted,
            further_places: self.standby_for.map_or(0, |places| places - 1),
            is_paused: self.paused,
            highest_term: self.highest_term,
            surplus_since: self.surplus_for.as_deref().map(ago).transpose()?,
            alone_since: self.alone_for.as_deref().map(ago).transpose()?,
            leaving_nodes: self.leaving_nodes.iter().cloned().map(NodeName).collect(),
            standby_place: place(self.standby.as_deref())?,
            ..Group::default()
        };
        for (number, line) in &self.pairs {
            let pair = pair(*number, line).map_err(|error| format!("pair {number}: {error}"))?;
            if line.split(", ").any(|word| word == "crash-looping") {
                group.crash_looping.insert(*number);
            }
            group.pairs.push(pair);
        }
        for (letter, line) in &self.pods {
            let (pod, is_silent) = pod(*letter, line).map_err(|error| format!("pod {letter}: {error}"))?;
            group.silent.extend(is_silent.then_some(pod.id));
            group.pods.push(pod);
        }
        let all = [
            (&self.lost, &mut group.lost),
            (&self.remembered, &mut group.remembered),
            (&self.unreadable, &mut group.unreadable),
        ];
        for (lines, into) in all {
            for (number, line) in lines {
                into.push(lost(*number, line).map_err(|error| format!("pair {number}: {error}"))?);
            }
        }
        self.label(&mut group);
        Ok(group)
    }

    /// Gives Pods whose lines do not say what they show the labels that they should have.
    fn label(&self, group: &mut Group) {
        let timing = Timing::default();
        let unpaused = Group { is_paused: false, ..group.clone() };
        let steps = plan(&unpaused, &Moment { now: testing::now(), timing: &timing }).steps;
        for step in steps {
            let PairAction::Label { pod, shown } = step.action else { continue };
            let is_said = |letter: &&char| id(**letter) == pod;
            let says = self.pods.keys().find(is_said).and_then(|letter| self.pods.get(letter));
            let is_told = says.is_some_and(|line| line.contains("shows"));
            let labelled = group.pods.iter_mut().find(|candidate| candidate.id == pod);
            if let Some(labelled) = labelled.filter(|_| !is_told) {
                labelled.shown = Shown { is_kept: labelled.shown.is_kept, ..shown };
            }
        }
    }
}

fn place(word: Option<&str>) -> Result<StandbyPlace, String> {
    match word {
        Some("Ignore") => Ok(StandbyPlace::Anywhere),
        None => Ok(StandbyPlace::Preferred),
        Some("Required") => Ok(StandbyPlace::Required),
        Some(other) => Err(not_understood(other)),
    }
}

fn pod(letter: char, line: &str) -> Result<(Pod, bool), String> {
    let number = id(letter).0;
    let mut pod = Pod { name: letter.to_string(), node: Some(NodeName("n1".into())), ..testing::pod(number) };
    let mut is_silent = false;
    for word in line.split(',').map(str::trim) {
        match word.split_once(' ').unwrap_or((word, "")) {
            ("ready", "") => pod.is_ready = true,
            ("unready", "") => pod.is_ready = false,
            ("leaving", "") => pod.is_leaving = true,
            ("starting", "") => (pod.address, pod.is_ready) = (None, false),
            ("moved", "") => pod.address = Some(([10, 1, 0, 1], 20_001).into()),
            ("silent", "") => is_silent = true,
            ("primary", "") => pod.role = Some(Role::Primary),
            ("hot", "") => pod.role = Some(Role::Hot),
            ("node", node) if !node.is_empty() => pod.node = Some(NodeName(node.into())),
            ("domain", domain) if !domain.is_empty() => pod.domain = Some(domain.into()),
            ("named", name) if !name.is_empty() => pod.name = name.into(),
            ("shows", "nothing") => pod.shown = Shown::default(),
            ("shows", "both") => pod.shown.is_contradictory = true,
            ("shows", part) => pod.shown = shown(part).ok_or_else(|| not_understood(word))?,
            ("kept", "") => pod.shown.is_kept = true,
            _ => return Err(not_understood(word)),
        }
    }
    Ok((pod, is_silent))
}

/// Labels, for example `active beside b`; the annotation names no tenure.
fn shown(words: &str) -> Option<Shown> {
    let (state, peer) = words.split_once(" beside ").unwrap_or((words, ""));
    let peer = (!peer.is_empty()).then(|| peer.to_owned());
    Some(Shown { state: Some(HaState::parse(state)?), peer, ..Shown::default() })
}

/// A pair, which begins with its two members: `a b`, or `a -` if a place is vacant. The first one acts.
fn pair(number: u32, line: &str) -> Result<Pair, String> {
    let mut words = line.split(',').map(str::trim);
    let members: Vec<&str> = words.next().unwrap_or_default().split(' ').collect();
    let [one, two] = members[..] else { return Err("it begins with two members, such as `a b`".into()) };
    let members = [member(one)?, member(two)?];
    let mut pair = testing::pair(number, members.map(|id| id.0));
    pair.names = members.into_iter().filter(|id| *id != VACANT).map(|id| (id, name(id))).collect();
    for word in words {
        describe(&mut pair, word)?;
    }
    Ok(pair)
}

fn describe(pair: &mut Pair, word: &str) -> Result<(), String> {
    match word.split_once(' ').unwrap_or((word, "")) {
        ("nobody", "acts") => pair.lease.holder = None,
        ("second", "acts") => pair.lease.holder = Some(pair.lease.members[1]),
        ("ending", "") => pair.is_ending = true,
        ("fenced", "") => pair.fenced = pair.lease.members.to_vec(),
        ("late", "") => (pair.lease.hold, pair.is_late) = (Hold::Api, true),
        ("unheard", "") => pair.lease.hold = Hold::Api,
        ("crash-looping", "") => {}
        ("ordered", "") => pair.switch_over = Some(pair.lease.epoch),
        ("ended", "") => pair.have_ended = true,
        ("rank", rank) => pair.rank = rank.parse().map_err(|_| not_understood(word))?,
        ("unwritten", time) => pair.unwritten_since = ago(time)?,
        ("silent", time) => {
            let standby = pair.lease.members[1];
            (pair.lease.hold, pair.silence) = (Hold::Api, Some(Silence { standby, since: ago(time)? }));
        }
        ("uncovered", rest) => {
            let (successor, time) = rest.rsplit_once(' ').unwrap_or(("", rest));
            let since = ago(time)?;
            let successor = match successor {
                "" => bps_core::pairing::Successor::There,
                "expected" => bps_core::pairing::Successor::Expected,
                "alone" => bps_core::pairing::Successor::Nobody { since },
                _ => return Err(not_understood(word)),
            };
            let held = pair.lease.holder.unwrap_or(pair.lease.members[0]);
            pair.uncovered = Some(Uncovered { held, since, successor });
        }
        ("forsaken", time) => pair.forsaken = Some(Forsaken { since: ago(time)?, was_told: false }),
        ("level", names) => {
            let level: Result<BTreeSet<AgentId>, String> = names.split_whitespace().map(member).collect();
            pair.level_pods = level?;
            pair.level = Some(pair.level_pods.len());
        }
        ("member", rest) => {
            let (letter, known) = rest.split_once(" named ").ok_or_else(|| not_understood(word))?;
            pair.names.insert(member(letter)?, known.to_owned());
        }
        ("asked", rest) => {
            let (joining, leaving) = rest.split_once(" for ").ok_or_else(|| not_understood(word))?;
            let (joining, leaving) = (member(joining)?, member(leaving)?);
            pair.lease.pending = Some(Replacement { leaving, joining });
            pair.names.insert(joining, name(joining));
            pair.addresses.insert(joining, testing::seat(joining.0).address);
        }
        _ => return Err(not_understood(word)),
    }
    Ok(())
}

/// A pair without a readable Lease: `a b`, and what is known of it.
fn lost(number: u32, line: &str) -> Result<Lost, String> {
    let mut words = line.split(',').map(str::trim);
    let pods = words.next().unwrap_or_default().split_whitespace().map(str::to_owned).collect();
    let mut lost = Lost::new(number, pods, None, testing::now());
    for word in words {
        match word.split_once(' ').unwrap_or((word, "")) {
            ("until", time) => lost.until = testing::now() + seconds(time)?,
            ("may", "return") => lost.may_return = true,
            ("level", directories) => {
                lost.level = Some(LevelText { directories: directories.into(), pods: String::new() });
            }
            _ => return Err(not_understood(word)),
        }
    }
    Ok(lost)
}

fn member(word: &str) -> Result<AgentId, String> {
    let mut letters = word.chars();
    match (letters.next(), letters.next()) {
        (Some('-'), None) => Ok(VACANT),
        (Some(letter @ 'a'..='z'), None) => Ok(id(letter)),
        _ => Err(format!("`{word}` is no Pod: write one letter, or - for none")),
    }
}

fn not_understood(word: &str) -> String {
    format!("`{word}` is not understood; {README}")
}

fn ago(text: &str) -> Result<BootTime, String> {
    Ok(testing::now().before(seconds(text)?))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let digits = text.strip_suffix('s').unwrap_or(text);
    let number = digits.parse().map_err(|_| format!("`{text}` is not a number of seconds such as 30s"))?;
    Ok(Duration::from_secs(number))
}
