//! Claims about pairs that somebody meddles with: what is deleted, edited or put back by hand.

use std::fmt::Debug;

use bps_api::{HAGroup, PairStatus, keys};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use lab::bench::pairs::watch::Watch;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::actors::Actors;
use crate::meddling::only_the_sets_slice_leads;
use crate::notes::note;
use crate::pairs::{
    order_switchover, paired, pod, shown, start_deployment, start_impatient_stateful_set, start_stateful_set,
    start_watched_stateful_set, taken_over,
};
use crate::stage::{Stage, WEB};
use crate::wait;

/// A pair whose Pods tell a sink of each answer, and who asks them.
async fn start_witnessed(stage: &Stage) -> (Watch, Actors) {
    let watch = Watch::start(&stage.bench.cluster, "n1").await.unwrap();
    start_watched_stateful_set(stage, 2, watch.address).await;
    paired(stage, 1).await;
    (watch, Actors::start(stage))
}

/// There were answers, and none of them was of one that had been followed.
async fn assert_one_at_a_time((watch, actors): (Watch, Actors)) {
    drop(actors.stop().await);
    let (answers, late) = watch.seen();
    note(format!("{late} of {answers} answers were of one that had been followed"));
    assert!(answers > 0 && late == 0, "{}", watch.describe());
}

pub(crate) async fn a_deleted_lease_is_made_again_as_it_was_and_nobody_ends(stage: Stage) {
    let witness = start_witnessed(&stage).await;
    let before = paired(&stage, 1).await.remove(0);
    shown(&stage, &before).await;
    let leases: Api<Lease> = stage.api();
    let mut backup = leases.get(&before.name).await.unwrap();
    let uid = backup.uid();
    leases.delete(&before.name, &DeleteParams::default()).await.unwrap();
    (backup.metadata.uid, backup.metadata.resource_version) = (None, None);
    let refused = leases.create(&PostParams::default(), &backup).await.expect_err("one from a backup");
    assert!(refused.to_string().contains("made by the operator only"), "{refused}");
    is_made_anew(&stage, uid).await;
    acts_on(&stage, &before).await;
    assert_one_at_a_time(witness).await;
}

/// Nobody knows what it said last.
pub(crate) async fn a_lease_that_is_deleted_while_no_operator_looks_is_made_anew_above_the_last_epoch(
    stage: Stage,
) {
    let watch = Watch::start(&stage.bench.cluster, "n1").await.unwrap();
    // Else they would be waited for for an hour.
    start_impatient_stateful_set(&stage, 2, watch.address).await;
    paired(&stage, 1).await;
    let witness = (watch, Actors::start(&stage));
    let before = paired(&stage, 1).await.remove(0);
    shown(&stage, &before).await;
    let leases: Api<Lease> = stage.api();
    let uid = leases.get(&before.name).await.unwrap().uid();
    stage.bench.stop_operators().await;
    leases.delete(&before.name, &DeleteParams::default()).await.unwrap();
    stage.bench.one_operator().await;
    // Whoever acts goes on until its grace ends, and clients must find it.
    wait::until(stage.api(), "", |groups: &[HAGroup]| {
        let mut lost = groups.iter().flat_map(|group| &group.status).flat_map(|status| &status.lost);
        lost.any(|lost| lost.name == before.name).then_some(()).ok_or_else(|| "nothing is lost".to_owned())
    })
    .await;
    let slice = stage.api::<EndpointSlice>().get(&before.name).await.unwrap();
    assert_eq!(slice.endpoints.len(), 1, "{slice:?}");
    is_made_anew(&stage, uid).await;
    acts_above(&stage, &before).await;
    assert_one_at_a_time(witness).await;
}

pub(crate) async fn a_selector_on_the_service_of_a_group_leaves_no_addresses_behind(stage: Stage) {
    start_stateful_set(&stage, 2).await;
    let pair = paired(&stage, 1).await.remove(0);
    shown(&stage, &pair).await;
    stage.kubectl(&["patch", "service", WEB, "-p", r#"{"spec":{"selector":{"app":"web"}}}"#]);
    only_the_sets_slice_leads(&stage, &pair.name).await;
    shown(&stage, &pair).await;
}

pub(crate) async fn a_group_that_is_made_anew_goes_on_where_it_was(stage: Stage) {
    let witness = start_witnessed(&stage).await;
    let first = paired(&stage, 1).await.remove(0);
    let before = switched_over(&stage, &first).await;
    let uid = stage.api::<Lease>().get(&before.name).await.unwrap().uid();
    stage.kubectl(&["delete", "hagroup", WEB, "--wait=true"]);
    wait::until(stage.api(), "", |leases: &[Lease]| {
        if leases.iter().any(|lease| lease.name_any() == before.name) {
            Err("its Lease is there".into())
        } else {
            Ok(())
        }
    })
    .await;
    // The Pods stay as they are.
    start_watched_stateful_set(&stage, 2, witness.0.address).await;
    is_made_anew(&stage, uid).await;
    acts_on(&stage, &before).await;
    assert_one_at_a_time(witness).await;
}

pub(crate) async fn permissions_and_keys_that_are_deleted_are_made_again(stage: Stage) {
    start_stateful_set(&stage, 2).await;
    let pair = paired(&stage, 1).await.remove(0);
    let (role, secret) = ("web-ha-agent", "web-ha-keys");
    stage.kubectl(&["delete", "role,rolebinding", role]);
    is_there::<Role>(&stage, role).await;
    is_there::<RoleBinding>(&stage, role).await;
    // The operator may not read it, and writes it when a Pod starts, which waits for it.
    stage.kubectl(&["delete", "secret", secret]);
    stage.kubectl(&["delete", "pod", &pair.standby, "--wait=true"]);
    is_there::<Secret>(&stage, secret).await;
    let pair = paired(&stage, 1).await.remove(0);
    switched_over(&stage, &pair).await;
    acts_above(&stage, &pair).await;
}

pub(crate) async fn nobody_but_its_pods_says_who_acts_in_a_pair(stage: Stage) {
    start_stateful_set(&stage, 2).await;
    let pair = paired(&stage, 1).await.remove(0);
    let refused = |patch: Value| {
        let (leases, name) = (stage.api::<Lease>(), pair.name.clone());
        async move {
            let said = leases.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
            said.expect_err("an administrator may not say who acts").to_string()
        }
    };
    let said = refused(json!({"spec": {"holderIdentity": null}})).await;
    assert!(said.contains("use kubectl bps switchover"), "{said}");
    let said = refused(json!({"metadata": {"annotations": {(keys::ANNOTATION_HA_HOLD): "Api"}}})).await;
    assert!(said.contains("use kubectl bps switchover"), "{said}");
    // The way that is named works.
    switched_over(&stage, &pair).await;
}

/// Waits until there is another Lease than the one of this uid.
async fn is_made_anew(stage: &Stage, uid: Option<String>) {
    wait::until(stage.api(), &format!("{}={WEB}", keys::LABEL_GROUP), |leases: &[Lease]| {
        let is_new = leases.iter().any(|lease| lease.uid() != uid);
        if is_new { Ok(()) } else { Err("no new Lease".into()) }
    })
    .await;
}

/// Waits until a pair acts, and in a later epoch than it did.
async fn acts_above(stage: &Stage, before: &PairStatus) {
    let after = paired(stage, 1).await.remove(0);
    shown(stage, &after).await;
    let epoch = |pair: &PairStatus| pair.epoch.parse::<u64>().unwrap();
    assert!(epoch(&after) > epoch(before), "{before:?}, {after:?}");
}

/// Waits until a pair acts, in the same tenure as it did, and passes its role on when it is told to.
async fn acts_on(stage: &Stage, before: &PairStatus) {
    let after = paired(stage, 1).await.remove(0);
    shown(stage, &after).await;
    assert_eq!((&after.active, &after.epoch), (&before.active, &before.epoch));
    switched_over(stage, &after).await;
    acts_above(stage, before).await;
}

/// Lets the standby of the only pair take over.
async fn switched_over(stage: &Stage, before: &PairStatus) -> PairStatus {
    order_switchover(stage, before).await;
    let after = taken_over(stage, before).await;
    assert_eq!(after.active, before.standby);
    after
}

/// Waits until there is an object of this name.
async fn is_there<K>(stage: &Stage, name: &str)
where
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Clone + DeserializeOwned + Debug + Send + 'static,
{
    wait::until(stage.api::<K>(), "", |objects: &[K]| {
        if objects.iter().any(|object| object.name_any() == name) {
            Ok(())
        } else {
            Err(format!("no {name}"))
        }
    })
    .await;
}

pub(crate) async fn labels_and_addresses_written_by_hand_are_put_right(stage: Stage) {
    start_stateful_set(&stage, 2).await;
    let pair = paired(&stage, 1).await.remove(0);
    shown(&stage, &pair).await;
    stage.kubectl(&["label", "pod", &pair.standby, "HAState=active", "--overwrite"]);
    stage.kubectl(&["label", "pod", &pair.active, "HAState-", "peer-"]);
    shown(&stage, &pair).await;
    let twin = |state: &str| format!("{}={state}", keys::LABEL_PAIR_STATE);
    stage.kubectl(&["label", "pod", &pair.standby, &twin("active"), "--overwrite"]);
    shown(&stage, &pair).await;
    emptied(&stage, &pair).await;
    shown(&stage, &pair).await;
    // Clients are led right even while nothing else is touched.
    let paused = json!({"spec": {"paused": true}});
    stage.api::<HAGroup>().patch(WEB, &PatchParams::default(), &Patch::Merge(paused)).await.unwrap();
    emptied(&stage, &pair).await;
    shown(&stage, &pair).await;
}

/// Takes the address of a pair's active away.
async fn emptied(stage: &Stage, pair: &PairStatus) {
    let empty = json!({"endpoints": []});
    let slices = stage.api::<EndpointSlice>();
    let slice = slices.patch(&pair.name, &PatchParams::default(), &Patch::Merge(empty)).await.unwrap();
    assert!(slice.endpoints.is_empty());
}

pub(crate) async fn a_pod_may_not_touch_the_lease_of_another_pair(stage: Stage) {
    start_deployment(&stage, 4).await;
    let pairs = paired(&stage, 2).await;
    let stranger = pod(&stage, &pairs[0].active).await;
    let client = stage.client_of(&stranger).await;
    let leases: Api<Lease> = Api::namespaced(client, &stage.namespace);
    let claim =
        json!({"spec": {"holderIdentity": format!("{}_{}", stranger.name_any(), stranger.uid().unwrap())}});
    let own = leases.patch(&pairs[0].name, &PatchParams::default(), &Patch::Merge(json!({"spec": {}}))).await;
    own.expect("a Pod may write the Lease of its own pair");
    let refused = leases.patch(&pairs[1].name, &PatchParams::default(), &Patch::Merge(claim)).await;
    let message = refused.expect_err("the Lease of another pair").to_string();
    assert!(message.contains("a Pod may change the Lease of its own pair only"), "{message}");
}
