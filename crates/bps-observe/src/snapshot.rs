//! Joins everything known of one set at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bps_api::service::{IpFamily, TrafficDistribution};
use bps_api::{BackupPodSet, ExposedService, HAGroup, HAGroupSpec, PromoteWhen, keys};
use bps_core::manifests::{
    Injection, SlicePort, budget as wanted_budget, budget_name, set_group_spec, set_injection, slice_name,
    slice_ports,
};
use bps_core::model::{
    ExposedKind, ExposedSlice, Exposure, Leftover, ObjectState, Others, PodName, PodView, Role, Snapshot, Uid,
};
use jiff::Timestamp;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube_core::ObjectMeta;

use super::budget;
use super::cache::{Cache, SetKey, TakenName, Usable, has_selector};
use super::exposure::{self, SliceWish};
use super::group::{level_standbys, withheld};
use super::owner::{is_controlled_by, is_for, is_orphan};
use super::pod::{self, PodContext, pod_view};
use super::slim::SlimPod;
use super::store::{Index, ObjectKey};
use super::wish::{self, Compiled, Error};

/// A set with its snapshot and what writes about it need besides.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The set as last seen, but with the last spec that could be used.
    pub set: Arc<BackupPodSet>,
    /// What decisions are made from.
    pub snapshot: Snapshot,
    /// Ports of the slice.
    pub ports: Vec<SlicePort>,
    /// The slices that there are, by their families.
    pub slices: BTreeMap<IpFamily, SeenSlice>,
    /// Families of the Service; IPv4 if there is none.
    pub families: Vec<IpFamily>,
    /// Identity and version of the Service, if there is one.
    pub service: Option<Version>,
    /// Its annotations.
    pub service_annotations: Option<BTreeMap<String, String>>,
    /// Which Pods it prefers: what the API server took of the wish.
    pub traffic_distribution: Option<TrafficDistribution>,
    /// What the group of the set's pairs should be, if its Pods are paired.
    pub group_spec: Option<HAGroupSpec>,
    /// Identity and version of that group, if there is one.
    pub group: Option<Version>,
    /// Identity and version of the set's PodDisruptionBudget, if there is one.
    pub budget: Option<Version>,
    /// Labels that it selects by and should not, sorted.
    pub budget_surplus: Vec<String>,
    /// The agent of the set's Pods, if they are paired.
    pub injection: Option<Injection>,
    /// Images of the template's containers.
    pub images: Vec<String>,
    /// What is wrong with the newest spec, in words for its author; [`Self::set`] has the last one that was right, as far as one
    /// is known.
    pub invalid: Option<Error>,
    /// Pods that carry the set's label and are controlled by somebody else, sorted.
    pub foreign_pods: Vec<String>,
    /// In which pairs nobody may act and what to do about it, as the group's status says; `None` if there is none.
    pub withheld: Option<String>,
    /// Identifiers of the keys that each cold Pod was made with.
    pub wake_keys: BTreeMap<Uid, String>,
    /// Pods with a ticket in their annotations.
    pub posted: BTreeSet<Uid>,
}

/// Identity and version of an object, for the guard of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Incarnation.
    pub uid: String,
    /// Version.
    pub resource_version: String,
    /// Nobody owns it.
    pub is_orphan: bool,
}

/// One consistent view of a set at `now`; `None` if the set does not exist or is being deleted.
pub fn observe(cache: &Cache, key: &SetKey, now: Timestamp) -> Option<Observation> {
    let newest = cache.set(key).filter(|set| set.metadata.deletion_timestamp.is_none())?;
    let Compiled { revision, error: invalid } = cache.compiled(key)?.clone();
    // A wrong edit does not take back what was wished before.
    let usable = if invalid.is_some() { cache.usable_form(key, &newest) } else { None };
    let is_usable = invalid.is_none() || usable.is_some();
    let (desired, set) = match usable {
        Some(Usable { set, revision }) => (wish::desired(&set, revision), set),
        None if is_usable => (wish::desired(&newest, revision), newest),
        None => (wish::as_it_is(&newest, revision), newest),
    };
    let hosts = cache.hosts(set.spec.domain_key(), now);
    let context = PodContext {
        set_uid: set.metadata.uid.as_deref().unwrap_or_default(),
        subsets: &desired.topology.subsets,
        hosts,
        keys: &cache.keys,
        noted: &cache.noted,
    };
    let mut pods: Vec<_> = cache.pods_of(key).filter_map(|pod| pod_view(pod, &context)).collect();
    pods.sort_by(|one, other| one.pod.name.cmp(&other.pod.name));
    let on_nodes = pods.iter().filter_map(|view| view.node.as_ref()).map(|node| &node.name);
    let next_gone = hosts.next_gone(on_nodes);
    let paired = if is_usable { paired(cache, &set) } else { paired_as_it_is(cache, &set) };
    // The actives of pairs are exposed by their group.
    let wanted = set.spec.service.as_ref().filter(|_| set.spec.active_standby.is_none());
    let exposed = wanted.and_then(|wanted| exposed(cache, &set, Wanted { service: wanted, is_usable, now }));
    let Exposed {
        exposure,
        ports,
        slices,
        families,
        service,
        service_annotations,
        traffic_distribution,
        look_by,
    } = exposed.unwrap_or_default();
    // What an unusable spec names instead is not there.
    let mut leftovers = if is_usable { leftovers(cache, &set) } else { Vec::new() };
    let Budget { state: budget_state, version: budget, surplus: budget_surplus } =
        if is_usable { kept_budget(cache, &set, &mut leftovers) } else { Budget::default() };
    let standbys = paired.as_ref().and_then(|paired| paired.level.as_ref());
    let level = standbys.map(|standbys| level_actives(standbys, &pods));
    let (group_state, group_spec, group, withheld, injection) = match paired {
        Some(Paired { state, spec, group, withheld, injection, .. }) => {
            (Some(state), spec, group, withheld, injection)
        }
        None => (None, None, None, None, None),
    };
    Some(Observation {
        snapshot: Snapshot {
            desired,
            pods,
            exposure,
            leftovers,
            budget: budget_state,
            group: group_state,
            level,
            recent: cache.noted.recent(key, now),
            storm: cache.storm(now).cloned(),
            look_by: [
                look_by,
                next_gone,
                cache.noted.forgets(key, now),
                cache.storm(now).map(|storm| storm.until),
            ]
            .into_iter()
            .flatten()
            .min(),
            now,
        },
        group_spec,
        group,
        budget,
        budget_surplus,
        injection,
        ports,
        slices,
        families,
        service,
        service_annotations,
        traffic_distribution,
        images: exposure::images(&set),
        invalid,
        foreign_pods: foreign_pods(cache, key, set.metadata.uid.as_deref().unwrap_or_default()),
        withheld,
        wake_keys: wake_keys(cache, key),
        posted: posted(cache, key),
        set: Arc::clone(&set),
    })
}

fn foreign_pods(cache: &Cache, key: &SetKey, set_uid: &str) -> Vec<String> {
    let is_foreign = |pod: &&Arc<SlimPod>| pod::ownership(pod, set_uid).is_none();
    let mut names: Vec<String> =
        cache.pods_of(key).filter(is_foreign).filter_map(|pod| pod.metadata.name.clone()).collect();
    names.sort();
    names
}

fn wake_keys(cache: &Cache, key: &SetKey) -> BTreeMap<Uid, String> {
    let of_pod = |pod: &SlimPod| {
        let ids = pod.metadata.annotations.as_ref()?.get(keys::ANNOTATION_WAKE_KEYS)?.clone();
        Some((Uid(pod.metadata.uid.clone()?), ids))
    };
    cache.pods_of(key).filter_map(|pod| of_pod(pod)).collect()
}

fn posted(cache: &Cache, key: &SetKey) -> BTreeSet<Uid> {
    let has_ticket = |pod: &&Arc<SlimPod>| {
        pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(keys::ANNOTATION_TICKET))
    };
    cache.pods_of(key).filter(has_ticket).filter_map(|pod| pod.metadata.uid.clone().map(Uid)).collect()
}

/// What a set with active and standby Pods has besides.
struct Paired {
    state: ObjectState,
    spec: Option<HAGroupSpec>,
    group: Option<Version>,
    withheld: Option<String>,
    /// Standbys that have all of the state, by their actives.
    level: Option<BTreeMap<PodName, PodName>>,
    injection: Option<Injection>,
}

/// The group of a set whose spec can be used.
fn paired(cache: &Cache, set: &BackupPodSet) -> Option<Paired> {
    let spec = set_group_spec(set).ok()??;
    // What cannot be read may be what is not wanted any more.
    let is_unread = |group: &HAGroup| cache.unread_groups.contains(&ObjectKey::of(group));
    let state = |group: Option<&HAGroup>| {
        let state = group_state(group, set, &spec);
        let is_doubtful = state == ObjectState::Current && group.is_some_and(is_unread);
        if is_doubtful { ObjectState::Outdated } else { state }
    };
    let paired = paired_in(cache, set, state)?;
    let injection = set_injection(set, cache.agent_image.as_deref());
    Some(Paired { spec: Some(spec), injection, ..paired })
}

/// The group of a set whose spec cannot be used, so that nothing of it is to be changed.
fn paired_as_it_is(cache: &Cache, set: &BackupPodSet) -> Option<Paired> {
    paired_in(cache, set, |group| match group {
        None => ObjectState::Absent,
        Some(group) if is_for(&group.metadata, set) => ObjectState::Current,
        Some(_) => ObjectState::Foreign,
    })
}

fn paired_in(
    cache: &Cache,
    set: &BackupPodSet,
    state: impl FnOnce(Option<&HAGroup>) -> ObjectState,
) -> Option<Paired> {
    let wanted = set.spec.active_standby.as_ref()?;
    let key = ObjectKey {
        namespace: set.metadata.namespace.clone().unwrap_or_default(),
        name: set.metadata.name.clone().unwrap_or_default(),
    };
    let found = cache.groups.get(&key);
    let state = state(found.map(AsRef::as_ref));
    let own = found.filter(|_| state != ObjectState::Foreign);
    let withheld = own.and_then(|group| withheld(group)).map(str::to_owned);
    let needs_level = wanted.state_dir.is_some() && wanted.promote_when != Some(PromoteWhen::Always);
    let level = needs_level.then(|| own.into_iter().flat_map(|group| level_standbys(group)).collect());
    let group = found.map(|group| version(&group.metadata));
    Some(Paired { state, spec: None, group, withheld, level, injection: None })
}

/// Actives whose standby has all of the state. The status of the group is written after the labels of its Pods, so that it may name a
/// standby that another one has followed.
fn level_actives(standbys: &BTreeMap<PodName, PodName>, pods: &[PodView]) -> BTreeSet<PodName> {
    let is_still = |active: &PodName, standby: &PodName| {
        let view = pods.binary_search_by(|view| view.pod.name.cmp(active)).ok().map(|index| &pods[index]);
        view.is_none_or(|view| view.part.peer_of_active() == Some(standby))
    };
    standbys
        .iter()
        .filter(|(active, standby)| is_still(active, standby))
        .map(|(active, _)| active.clone())
        .collect()
}

/// How the group compares with the wish.
fn group_state(group: Option<&HAGroup>, set: &BackupPodSet, wanted: &HAGroupSpec) -> ObjectState {
    match group {
        None => ObjectState::Absent,
        Some(group) if !is_for(&group.metadata, set) => ObjectState::Foreign,
        Some(group) if group.spec == *wanted && is_controlled_by(&group.metadata, set) => {
            ObjectState::Current
        }
        Some(_) => ObjectState::Outdated,
    }
}

#[derive(Default)]
struct Exposed {
    exposure: Option<Exposure>,
    ports: Vec<SlicePort>,
    slices: BTreeMap<IpFamily, SeenSlice>,
    families: Vec<IpFamily>,
    service: Option<Version>,
    service_annotations: Option<BTreeMap<String, String>>,
    traffic_distribution: Option<TrafficDistribution>,
    /// When it is to be looked again what others expose.
    look_by: Option<Timestamp>,
}

/// The Service that a set should have, and when that is asked.
struct Wanted<'a> {
    service: &'a ExposedService,
    /// Whether the spec that says so can be used.
    is_usable: bool,
    now: Timestamp,
}

fn exposed(
    cache: &Cache,
    set: &BackupPodSet,
    Wanted { service: wanted, is_usable, now }: Wanted<'_>,
) -> Option<Exposed> {
    let namespace = set.metadata.namespace.clone().unwrap_or_default();
    let key = |name: String| ObjectKey { namespace: namespace.clone(), name };
    let service = cache.services.get(&key(wanted.name.clone()));
    let families = families(cache, set, &wanted.name);
    let named = |family: &IpFamily| cache.slices.get(&key(slice_name(&wanted.name, *family)));
    let found: Vec<_> =
        families.iter().filter_map(|family| Some((*family, named(family)?.as_ref()))).collect();
    let unless_taken = |state: ObjectState, (kind, name): (ExposedKind, String)| {
        let taken = TakenName { kind, namespace: namespace.clone(), name };
        if state == ObjectState::Absent && cache.is_taken(&taken, now) { ObjectState::Foreign } else { state }
    };
    // Ports that lead nowhere leave those that there are as they are; so does a spec of which a part may be missing.
    let wanted_ports = slice_ports(set, wanted).ok();
    let is_led = wanted_ports.is_some() && is_usable;
    let present = || found.first().map(|(_, slice)| exposure::present_ports(slice));
    let ports = if is_led { wanted_ports } else { present().or(wanted_ports) }?;
    let traffic_distribution = service.and_then(|service| exposure::traffic_distribution(service));
    let kept = ExposedService { traffic_distribution, ..wanted.clone() };
    let exposed_slice = |family: &IpFamily| {
        let wish = SliceWish { family: *family, service: &kept, ports: &ports };
        let slice = exposure::exposed_slice(named(family).map(AsRef::as_ref), set, wish);
        let taken = (ExposedKind::Slice, slice_name(&wanted.name, *family));
        ExposedSlice { state: unless_taken(slice.state, taken), ..slice }
    };
    let exposed_slices = families.iter().map(exposed_slice).collect();
    let service_state = exposure::service_state(service.map(AsRef::as_ref), set, wanted);
    let is_left = service_state == ObjectState::Outdated && !is_led;
    let service_state = if is_left { ObjectState::Current } else { service_state };
    let service_state = unless_taken(service_state, (ExposedKind::Service, wanted.name.clone()));
    let (others, look_by) = match service {
        // While the Service has a selector, whatever is taken away is written again.
        Some(service) if service_state == ObjectState::Current && !has_selector(service) => {
            let uid = service.metadata.uid.as_deref().unwrap_or_default();
            let seen = slices_of_others(cache, set, wanted);
            cache.others(&key(wanted.name.clone()), uid, &seen, now)
        }
        Some(_) | None => (Others::None, None),
    };
    Some(Exposed {
        exposure: Some(Exposure { service: service_state, slices: exposed_slices, others }),
        look_by,
        ports,
        slices: found.iter().map(|(family, slice)| (*family, seen_slice(slice, *family))).collect(),
        families,
        service: service.map(|service| version(&service.metadata)),
        traffic_distribution,
        service_annotations: service.and_then(|service| service.metadata.annotations.clone()),
    })
}

fn seen_slice(slice: &EndpointSlice, family: IpFamily) -> SeenSlice {
    SeenSlice { version: version(&slice.metadata), is_misplaced: exposure::is_misplaced(slice, family) }
}

/// Slices of somebody else behind the set's Service that the watches show.
fn slices_of_others<'a>(cache: &'a Cache, set: &'a BackupPodSet, wanted: &ExposedService) -> Vec<&'a str> {
    let namespace = set.metadata.namespace.clone().unwrap_or_default();
    let own = wanted_slices(cache, set, &wanted.name);
    let service = Index::Service(ObjectKey { namespace, name: wanted.name.clone() });
    let slices = cache.slices.found_by(&service).map(|slice| &slice.metadata);
    let others = slices.filter(|slice| exposure::is_of_others(slice, set, &wanted.name, &own));
    others.filter_map(|slice| slice.name.as_deref()).collect()
}

/// The PodDisruptionBudget of a set.
#[derive(Default)]
struct Budget {
    state: Option<ObjectState>,
    version: Option<Version>,
    surplus: Vec<String>,
}

/// The set's budget, which is left over if it wants none, or somebody else has one for its Pods.
fn kept_budget(cache: &Cache, set: &BackupPodSet, leftovers: &mut Vec<Leftover>) -> Budget {
    let namespace = set.metadata.namespace.clone().unwrap_or_default();
    if !cache.has_listed_budgets(&namespace) {
        return Budget::default();
    }
    let name = budget_name(set.metadata.name.as_deref().unwrap_or_default());
    let key = ObjectKey { namespace, name };
    let found = cache.budgets.get(&key).or_else(|| cache.foreign_budgets.get(&key)).map(AsRef::as_ref);
    let is_own = found.is_some_and(|found| is_for(&found.metadata, set));
    // Two budgets for one Pod would have Kubernetes refuse every eviction of it.
    let except = is_own.then_some(&key);
    let is_selected = [Role::Primary, Role::Hot].into_iter().any(|role| {
        let labels = budget::labels(set, role);
        budget::is_selected(&cache.foreign_budgets, except, &key.namespace, &labels)
    });
    let version = found.map(|found| version(&found.metadata));
    let Some(wanted) = wanted_budget(set).filter(|_| !is_selected) else {
        let own = found.and_then(|found| leftover(set, ExposedKind::Budget, &found.metadata));
        leftovers.extend(own);
        leftovers.sort();
        return Budget { version, ..Budget::default() };
    };
    Budget {
        state: Some(budget::budget_state(found, set, &wanted)),
        version,
        surplus: found.map(|found| budget::surplus_labels(found, &wanted)).unwrap_or_default(),
    }
}

fn leftovers(cache: &Cache, set: &BackupPodSet) -> Vec<Leftover> {
    let wanted = set.spec.service.as_ref().map(|service| service.name.as_str());
    let wanted_slices: Vec<String> =
        wanted.into_iter().flat_map(|service| wanted_slices(cache, set, service)).collect();
    let own = Index::Controller(set.metadata.uid.clone().unwrap_or_default());
    let services = cache.services.found_by(&own).map(|service| &service.metadata);
    let slices = cache.slices.found_by(&own);
    let services = services.filter(|found| found.name.as_deref() != wanted);
    let services = services.filter_map(|found| leftover(set, ExposedKind::Service, found));
    let slices = slices.map(|slice| &slice.metadata);
    let slices = slices.filter(|found| !found.name.as_ref().is_some_and(|name| wanted_slices.contains(name)));
    let slices = slices.filter_map(|found| leftover(set, ExposedKind::Slice, found));
    let mut leftovers: Vec<Leftover> = services.chain(slices).collect();
    leftovers.sort();
    leftovers
}

/// Names of the slices that a Service of the set should have: one for each family that it has.
fn wanted_slices(cache: &Cache, set: &BackupPodSet, service: &str) -> Vec<String> {
    families(cache, set, service).into_iter().map(|family| slice_name(service, family)).collect()
}

/// Families of the set's Service of this name. While it is not there, or somebody else's, those of the slices that it had count as
/// well: their addresses are ours to take away.
fn families(cache: &Cache, set: &BackupPodSet, service: &str) -> Vec<IpFamily> {
    let namespace = set.metadata.namespace.clone().unwrap_or_default();
    let key = |name: String| ObjectKey { namespace: namespace.clone(), name };
    let found = cache.services.get(&key(service.to_owned()));
    let mut families = exposure::families(found.map(AsRef::as_ref));
    if found.is_none_or(|found| !is_for(&found.metadata, set)) {
        let has_slice = |family: &IpFamily| {
            let slice = cache.slices.get(&key(slice_name(service, *family)));
            slice.is_some_and(|slice| is_for(&slice.metadata, set))
        };
        let left = [IpFamily::IPv4, IpFamily::IPv6].into_iter().filter(has_slice);
        families.extend(left);
        families.sort();
        families.dedup();
    }
    families
}

fn leftover(set: &BackupPodSet, kind: ExposedKind, found: &ObjectMeta) -> Option<Leftover> {
    let name = found.name.clone()?;
    if found.deletion_timestamp.is_some() || !is_controlled_by(found, set) {
        return None;
    }
    let Version { uid, resource_version, .. } = version(found);
    Some(Leftover { kind, name, uid: Uid(uid), resource_version })
}

/// A slice of a Service as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenSlice {
    /// Its identity and version.
    pub version: Version,
    /// Whether it has addresses of another family than its name says: no write changes that, so it has to be made anew.
    pub is_misplaced: bool,
}

fn version(metadata: &ObjectMeta) -> Version {
    Version {
        uid: metadata.uid.clone().unwrap_or_default(),
        resource_version: metadata.resource_version.clone().unwrap_or_default(),
        is_orphan: is_orphan(metadata),
    }
}
