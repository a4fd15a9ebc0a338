//! The list of claims, and how one is held.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams};
use tokio::runtime::Handle;

use crate::bench::Bench;
use crate::stage::Stage;
use crate::{
    active_sets, failover, faults, hostile, idle, manifests, meddling, nodes, outages, pairs, record, redis,
    refusals, replication, rollout, sizes, tampering, two_faults, volumes, workloads,
};

/// Something that is true on a real cluster, and how to find out.
pub(crate) struct Claim {
    /// The function's name, which is the claim.
    pub(crate) name: &'static str,
    run: Box<dyn Fn(Stage) -> BoxFuture<'static, ()> + Send + Sync>,
}

fn claim<Run, Held>(run: Run) -> Claim
where
    Run: Fn(Stage) -> Held + Send + Sync + 'static,
    Held: Future<Output = ()> + Send + 'static,
{
    Claim { name: name_of::<Run>(), run: Box::new(move |stage| run(stage).boxed()) }
}

/// One whose future stays on a thread: those of the benchmark, which has a thread of its own, cannot be moved.
fn staying<Run, Held>(run: Run) -> Claim
where
    Run: Fn(Stage) -> Held + Copy + Send + Sync + 'static,
    Held: Future<Output = ()>,
{
    let held = move |stage| async move {
        let runtime = Handle::current();
        let held = tokio::task::spawn_blocking(move || runtime.block_on(run(stage))).await;
        held.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
    };
    Claim { name: name_of::<Run>(), run: Box::new(move |stage| held(stage).boxed()) }
}

/// Name of a function.
fn name_of<Run>() -> &'static str {
    let path = std::any::type_name::<Run>();
    path.rsplit("::").next().unwrap_or(path)
}

/// Every claim, in the order in which they are held.
pub(crate) fn claims() -> Vec<Claim> {
    of_sets().into_iter().chain(of_pairs()).collect()
}

fn of_sets() -> Vec<Claim> {
    vec![
        claim(sizes::the_papers_example_becomes_two_primaries_two_hot_and_two_cold_with_its_columns_right),
        claim(sizes::scaling_out_converts_and_keeps_every_pod),
        claim(sizes::scaling_in_keeps_a_serving_primary),
        claim(sizes::every_count_goes_to_zero_and_back),
        claim(failover::a_deleted_primary_is_followed_by_the_hot_backup_and_every_tier_is_refilled),
        claim(failover::a_killed_primary_swaps_roles_and_no_pod_is_deleted),
        claim(failover::a_woken_pod_passes_its_gate_again_after_its_sandbox_was_killed),
        claim(failover::no_request_fails_while_a_primary_is_deleted_gracefully),
        claim(nodes::a_lost_node_is_survived_and_leaves_no_surplus_when_it_returns),
        claim(outages::an_operator_killed_in_mid_conversion_is_continued_to_the_same_end),
        claim(outages::a_second_operator_waits_and_takes_over_when_the_leader_is_killed),
        claim(outages::a_failover_ends_well_although_the_api_server_was_killed_in_it),
        claim(rollout::a_new_template_reaches_every_pod_without_a_failed_request),
        claim(rollout::a_broken_template_stops_after_one_backup_and_a_revert_recovers),
        claim(failover::a_failed_pod_is_replaced),
        claim(nodes::a_cordoned_node_gives_the_primary_role_away),
        claim(nodes::a_primary_that_never_runs_gives_its_place_to_a_cold_backup),
        claim(refusals::a_quota_is_reported_and_the_set_recovers_when_it_is_lifted),
        claim(refusals::a_namespace_with_restricted_pod_security_admits_every_pod),
        claim(refusals::a_paused_set_is_not_touched),
        claim(refusals::a_taken_name_does_not_stop_the_set),
        claim(sizes::kubectl_scale_and_an_autoscaler_act_on_primaries),
        claim(manifests::every_example_is_applied_and_acted_on),
        claim(manifests::the_client_of_the_counter_loses_nothing_when_its_active_is_killed),
        claim(manifests::the_example_of_a_paired_set_serves_before_and_after_an_active_is_killed),
        claim(meddling::a_removed_service_and_emptied_addresses_are_restored),
        claim(meddling::a_renamed_service_takes_the_place_of_the_former_one),
        claim(meddling::pods_that_are_all_deleted_at_once_are_all_made_again),
        claim(meddling::a_role_label_written_by_hand_ends_in_the_wanted_counts),
        claim(meddling::an_orphaned_pod_is_adopted_by_a_set_of_the_same_name),
        claim(hostile::garbage_at_the_gate_wakes_nobody),
        claim(sizes::a_deleted_set_takes_everything_of_its_with_it),
    ]
}

fn of_pairs() -> Vec<Claim> {
    vec![
        claim(pairs::a_stateful_set_of_two_becomes_a_pair_with_its_labels_and_services),
        claim(pairs::a_killed_application_is_followed_by_the_standby_s_within_a_moment),
        claim(pairs::a_deleted_active_hands_over_and_its_successor_becomes_the_standby),
        claim(pairs::no_request_fails_in_a_switchover_that_makes_before_it_breaks),
        claim(pairs::nobody_is_refused_when_a_deleted_pod_hands_over_to_one_that_starts_slowly),
        claim(pairs::a_lost_node_costs_no_more_than_the_lease),
        claim(workloads::pairs_come_and_go_with_the_replicas_of_a_deployment),
        claim(workloads::a_stateful_set_grows_one_pod_after_the_other_and_shrinks_from_the_top),
        claim(workloads::no_request_fails_when_two_actives_without_standbys_become_one_pair),
        claim(workloads::no_request_fails_when_pairs_go_whose_containers_sleep_before_they_end),
        claim(workloads::a_rollout_of_a_deployment_of_one_pair_reaches_both_pods),
        claim(workloads::a_rollout_of_a_stateful_set_of_one_pair_reaches_both_pods),
        staying(faults::whatever_befalls_its_active_a_pair_serves_again_and_never_do_two_act),
        staying(faults::an_active_is_followed_at_once_although_the_operator_was_killed_before_it),
        staying(faults::several_actives_killed_at_once_are_followed_at_once_each_by_its_standby),
        staying(faults::nobody_takes_over_while_the_machine_has_too_much_to_do),
        staying(faults::an_active_is_followed_at_once_while_its_group_grows_by_a_pair),
        staying(faults::an_active_is_followed_at_once_while_other_pairs_of_its_group_go),
        staying(faults::a_deployment_grows_to_sixteen_pairs_and_shrinks_to_one_and_never_do_two_act),
        claim(idle::nothing_is_written_about_an_idle_pair_but_that_its_lease_is_held),
        claim(two_faults::never_do_two_act_when_two_faults_come_together),
        claim(tampering::a_deleted_lease_is_made_anew_above_the_last_epoch),
        claim(tampering::labels_and_addresses_written_by_hand_are_put_right),
        claim(tampering::a_pod_may_not_touch_the_lease_of_another_pair),
        claim(tampering::a_group_that_is_made_anew_goes_on_above_its_last_epoch),
        claim(tampering::permissions_and_keys_that_are_deleted_are_made_again),
        claim(tampering::nobody_but_its_pods_says_who_acts_in_a_pair),
        claim(active_sets::roles_of_a_paired_set_follow_the_application_that_acts),
        claim(active_sets::a_deleted_primary_of_a_paired_set_is_followed_by_its_standby_and_a_woken_one),
        claim(active_sets::a_set_whose_image_has_the_agent_is_paired_and_wakes_its_cold_backup),
        claim(active_sets::a_set_that_mounts_the_agents_image_is_paired_and_wakes_its_cold_backup),
        claim(active_sets::the_pairs_of_a_set_come_and_go_with_its_primaries),
        claim(active_sets::a_new_template_reaches_every_pod_of_a_paired_set_and_one_of_each_pair_acts),
        claim(record::a_takeover_is_remembered_with_its_reason_and_every_phase_in_order),
        claim(record::the_metrics_of_an_agent_are_for_the_token_of_its_group_alone),
        claim(redis::a_redis_pair_keeps_every_acknowledged_write_and_only_one_takes_them),
        claim(replication::a_counter_with_replicated_state_loses_no_acknowledged_increment),
        claim(replication::a_rollout_of_a_replicated_counter_loses_no_acknowledged_increment),
        claim(volumes::pods_that_come_back_with_their_volumes_have_every_acknowledged_increment),
    ]
}

/// Holds one claim in a namespace of its own; returns what was wrong.
pub(crate) async fn hold(bench: &Arc<Bench>, claim: &Claim, namespace: &str) -> Option<String> {
    let stage = {
        let (bench, namespace) = (Arc::clone(bench), namespace.to_owned());
        async move {
            bench.one_operator().await;
            Stage::new(&bench, &namespace).await
        }
    };
    // A claim that panics must not end the others, nor keep the cluster from being removed.
    let held = match tokio::spawn(stage).await {
        Ok(stage) => tokio::spawn((claim.run)(stage)).await,
        Err(error) => Err(error),
    };
    let complaints = bench.complaints().await;
    let problem = match held {
        Err(error) => Some(panic_text(error)),
        Ok(()) if !complaints.is_empty() => Some(format!("the operator complained: {complaints:#?}")),
        Ok(()) => None,
    };
    if problem.is_none() {
        let namespaces: Api<Namespace> = Api::all(bench.client.clone());
        let _ = namespaces.delete(namespace, &DeleteParams::default()).await;
    }
    problem
}

fn panic_text(error: tokio::task::JoinError) -> String {
    let payload = error.into_panic();
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}
