//! Switches nodes on and off, and cuts and heals the ways between nodes and between Pods.

use std::collections::BTreeSet;

use super::{Error, Target, acting, parts};
use crate::addresses::NodeAddresses;
use crate::cluster::{self, Cluster};
use crate::containers;
use crate::cuts::{Cut, Flow, Peer, PodAddress};
use crate::machine::clock::Instant;
use crate::machine::network;
use crate::node::{self, Site};
use crate::packages;
use crate::state::{self, Journal};

/// Two Pods that shall not hear each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodPair {
    /// Its packets do not arrive any more.
    pub from: Target,
    /// For whom they are.
    pub to: Target,
    /// Whether the answers do not arrive either.
    pub is_both_ways: bool,
}

impl PodPair {
    /// From whom to whom nothing arrives.
    fn ways(&self) -> Vec<(&Target, &Target)> {
        let there = (&self.from, &self.to);
        if self.is_both_ways { vec![there, (&self.to, &self.from)] } else { vec![there] }
    }
}

/// Faults of nodes and of the network.
impl Cluster {
    /// Takes the power from a node: nothing more gets out of it, and all its processes are killed. Its disk
    /// stays.
    ///
    /// # Errors
    /// `FindSwitched` if it is off; see [`enum@Error`].
    pub fn power_off(&self, name: &str) -> Result<Instant, Error> {
        let node = self.node(name)?;
        let site = self.site()?;
        self.change(|journal| {
            let run = switch(journal, &node, false)?;
            site.power_off(&node.name, &run).map_err(acting("power off a node"))
        })
    }

    /// Gives a node its power back, with the cuts that it had; returns before it is ready.
    ///
    /// # Errors
    /// `FindSwitched` if it is on; see [`enum@Error`].
    pub fn power_on(&self, name: &str) -> Result<Instant, Error> {
        let node = self.node(name)?;
        let site = self.site()?;
        self.change(|journal| {
            switch(journal, &node, true)?;
            let instant = Instant::now();
            site.connect(&node).map_err(acting("connect the node"))?;
            apply_cuts(&site, journal)?;
            for part in node::PARTS {
                let owner = node::owner(&node.name, part);
                if part == node::KUBELET {
                    parts::start_and_watch(journal, &owner)?;
                    continue;
                }
                parts::start(journal, &owner)?;
                if part == node::CONTAINERD {
                    let directory = self.run_directory().node(&node.name);
                    node::await_containerd(&directory).map_err(acting("start containerd"))?;
                }
            }
            Ok(instant)
        })
    }

    /// Cuts a node off. Connections are not reset: packets just no longer arrive.
    ///
    /// # Errors
    /// `FindCluster` if a node is unknown; `Act` if the rules are refused.
    pub fn cut(&self, name: &str, from: Peer) -> Result<Instant, Error> {
        let node = self.node(name)?.name;
        if let Peer::Node(peer) = &from {
            self.node(peer)?;
        }
        self.change_cuts(|cuts| cuts.extend([Cut { node, from }]))
    }

    /// Heals all cuts that a node is part of; those between Pods stay.
    ///
    /// # Errors
    /// `FindCluster` if the node is unknown; `Act` if the rules are refused.
    pub fn heal(&self, name: &str) -> Result<Instant, Error> {
        let node = self.node(name)?.name;
        let is_of_node = |cut: &Cut| match &cut.from {
            Peer::Api | Peer::All => cut.node == node,
            Peer::Node(other) => cut.node == node || *other == node,
            Peer::Pod(_) => false,
        };
        self.change_cuts(|cuts| cuts.retain(|cut| !is_of_node(cut)))
    }

    /// Drops what one Pod sends to another, directly or through a Service, as long as both have the addresses
    /// that they have now.
    ///
    /// # Errors
    /// `FindContainer` or `FindAddress` if one of them is not to be found; `Act` if the rules are refused.
    pub fn cut_pods(&self, pair: &PodPair) -> Result<Instant, Error> {
        let way = |(from, to): (&Target, &Target)| {
            let ((_, from), (node, to)) = (self.address(from)?, self.address(to)?);
            Ok(Cut { node, from: Peer::Pod(Flow { from, to }) })
        };
        let cuts = pair.ways().into_iter().map(way).collect::<Result<Vec<_>, Error>>()?;
        self.change_cuts(|all| all.extend(cuts))
    }

    /// Lets packets from one Pod to another pass again, whether or not the Pods are still there.
    ///
    /// # Errors
    /// `Act` if the rules are refused.
    pub fn heal_pods(&self, pair: &PodPair) -> Result<Instant, Error> {
        let is_healed = |flow: &Flow| {
            pair.ways().iter().any(|(from, to)| flow.from.pod == from.name() && flow.to.pod == to.name())
        };
        let keep = |cut: &Cut| !matches!(&cut.from, Peer::Pod(flow) if is_healed(flow));
        self.change_cuts(|cuts| cuts.retain(keep))
    }

    /// The node that a Pod is on, and its address.
    fn address(&self, target: &Target) -> Result<(String, PodAddress), Error> {
        let pod = target.name();
        for node in self.nodes()? {
            let directory = self.run_directory().node(&node.name);
            if let Some(sandbox) = containers::sandbox(&directory, &target.namespace, &target.pod) {
                let address = containers::address(&directory, &sandbox);
                let address = address.ok_or_else(|| Error::FindAddress { pod: pod.clone() })?;
                return Ok((node.name, PodAddress { pod, address }));
            }
        }
        Err(Error::FindContainer { target: target.describe() })
    }

    fn change_cuts(&self, change: impl FnOnce(&mut BTreeSet<Cut>)) -> Result<Instant, Error> {
        let site = self.site()?;
        self.change(|journal| {
            journal.change(|state| change(&mut state.cuts)).map_err(Error::KeepState)?;
            let instant = Instant::now();
            apply_cuts(&site, journal)?;
            Ok(instant)
        })
    }

    fn site(&self) -> Result<Site, Error> {
        let cni_plugins = packages::ensure().map_err(cluster::Error::PrepareMachine)?;
        Ok(Site { run: self.run_directory().clone(), nodes: self.nodes()?, cni_plugins })
    }
}

/// Renews what each node that is on lets through.
fn apply_cuts(site: &Site, journal: &Journal) -> Result<(), Error> {
    let state = journal.snapshot();
    let isolated: BTreeSet<_> =
        state.cuts.iter().filter(|cut| cut.from == Peer::All).map(|cut| cut.node.as_str()).collect();
    for node in state.nodes.iter().filter(|node| node.is_on) {
        let plugged = if isolated.contains(node.name.as_str()) {
            network::unplug(&node.name)
        } else {
            network::plug(&node.name)
        };
        plugged.map_err(acting("plug or unplug a node"))?;
        site.apply_cuts(&node.name, &state).map_err(acting("change a node's packet filter"))?;
    }
    Ok(())
}

/// Writes down that a node is on or off; returns the mark of the run.
fn switch(journal: &Journal, node: &NodeAddresses, is_on: bool) -> Result<String, Error> {
    let was_on = journal.snapshot().nodes.iter().any(|one| one.name == node.name && one.is_on);
    if was_on == is_on {
        return Err(Error::FindSwitched { node: node.name.clone(), is_on });
    }
    let record = |state: &mut state::State| {
        for one in state.nodes.iter_mut().filter(|one| one.name == node.name) {
            one.is_on = is_on;
        }
        state.run.clone()
    };
    journal.change(record).map_err(Error::KeepState)
}
