//! The list of claims, and how one is held.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams};
use tokio::runtime::Handle;
use tokio::sync::Mutex;

use crate::bench::Bench;
use crate::lanes::{Lane, Need};
use crate::stage::Stage;
use crate::{
    active_sets, domains, failover, faults, foretold, hostile, idle, kubernetes, manifests, meddling, models,
    nodes, notes, outages, pairs, record, redis, refusals, replication, rollout, scheduler, shared_standbys,
    sizes, tampering, two_faults, volumes, workloads,
};

/// Something that is true on a real cluster, and how to find out.
pub(crate) struct Claim {
    /// The function's name, which is the claim.
    pub(crate) name: &'static str,
    /// What it needs.
    pub(crate) need: Need,
    run: Box<dyn Fn(Stage) -> Result<(), String> + Send + Sync>,
}

/// A claim that needs the machine for itself, and how many seconds it took when this was written.
fn machine<Run, Held>(seconds: u32, run: Run) -> Claim
where
    Run: Fn(Stage) -> Held + Send + Sync + 'static,
    Held: Future<Output = ()>,
{
    claim(Need { lane: Lane::Machine, seconds }, run)
}

/// One that counts failed requests, or judges how soon something happens.
fn quiet<Run, Held>(seconds: u32, run: Run) -> Claim
where
    Run: Fn(Stage) -> Held + Send + Sync + 'static,
    Held: Future<Output = ()>,
{
    claim(Need { lane: Lane::Quiet, seconds }, run)
}

/// One that others do not disturb.
fn any<Run, Held>(seconds: u32, run: Run) -> Claim
where
    Run: Fn(Stage) -> Held + Send + Sync + 'static,
    Held: Future<Output = ()>,
{
    claim(Need { lane: Lane::Any, seconds }, run)
}

/// Each is held on a thread of its own: what blocks in one, such as kubectl, does not hold up the others, and the benchmark's
/// futures may not move to another thread.
fn claim<Run, Held>(need: Need, run: Run) -> Claim
where
    Run: Fn(Stage) -> Held + Send + Sync + 'static,
    Held: Future<Output = ()>,
{
    let held = move |stage| {
        let held = AssertUnwindSafe(|| Handle::current().block_on(run(stage)));
        // A claim that panics must not end the others, nor keep the cluster from being removed.
        catch_unwind(held).map_err(|payload| text_of(&*payload))
    };
    Claim { name: name_of::<Run>(), need, run: Box::new(held) }
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
        any(5, sizes::the_papers_example_becomes_two_primaries_two_hot_and_two_cold_with_its_columns_right),
        any(12, sizes::scaling_out_converts_and_keeps_every_pod),
        any(9, sizes::scaling_in_keeps_a_serving_primary),
        any(15, sizes::every_count_goes_to_zero_and_back),
        any(9, failover::a_deleted_primary_is_followed_by_the_hot_backup_and_every_tier_is_refilled),
        quiet(5, failover::a_killed_primary_swaps_roles_and_no_pod_is_deleted),
        any(13, failover::a_woken_pod_passes_its_gate_again_after_its_sandbox_was_killed),
        quiet(8, failover::no_request_fails_while_a_primary_is_deleted_gracefully),
        machine(26, nodes::a_lost_node_is_survived_and_leaves_no_surplus_when_it_returns),
        machine(25, nodes::a_kubelet_that_is_restarted_moves_no_role),
        machine(40, nodes::a_kubelet_that_was_away_until_its_node_was_lost_moves_no_role_when_it_comes_back),
        machine(6, outages::an_operator_killed_in_mid_conversion_is_continued_to_the_same_end),
        machine(20, outages::a_second_operator_waits_and_takes_over_when_the_leader_is_killed),
        machine(60, outages::an_operator_that_is_installed_anew_with_other_keys_loses_no_backup_and_no_pair),
        machine(110, outages::a_pair_outlives_an_api_server_that_is_away_and_passes_its_role_on_meanwhile),
        machine(45, outages::an_active_whose_standby_was_scaled_away_outlives_an_api_server_that_is_away),
        machine(14, outages::a_failover_ends_well_although_the_api_server_was_killed_in_it),
        quiet(14, rollout::a_new_template_reaches_every_pod_without_a_failed_request),
        any(24, rollout::a_broken_template_stops_after_one_backup_and_a_revert_recovers),
        any(3, failover::a_failed_pod_is_replaced),
        quiet(20, failover::a_woken_pod_serves_however_long_its_init_container_takes),
        any(30, failover::a_set_whose_gates_do_not_answer_serves_with_a_pod_that_has_none),
        any(10, failover::a_set_whose_gates_do_not_start_serves_with_a_pod_that_has_none),
        machine(15, failover::a_cold_backup_is_woken_although_the_operator_cannot_reach_its_gate),
        machine(60, nodes::a_node_is_drained_of_a_pod_that_was_cold_once_without_further_flags),
        any(20, nodes::a_budget_lets_one_pod_that_runs_be_evicted_and_makes_way_for_another_one),
        machine(1, nodes::a_cordoned_node_gives_the_primary_role_away),
        machine(5, nodes::a_node_that_an_autoscaler_is_about_to_remove_gives_the_primary_role_away),
        machine(8, nodes::objects_of_nodes_that_never_came_keep_no_set_from_being_repaired),
        any(20, domains::a_set_says_which_loss_it_would_not_outlive),
        any(25, domains::primaries_return_to_their_subset_by_a_swap_of_roles),
        machine(60, domains::the_other_zones_fill_in_for_a_lost_one_until_it_returns),
        machine(30, foretold::who_takes_over_is_what_was_foretold),
        any(15, foretold::a_drill_goes_as_foretold_and_is_noted_in_its_set),
        quiet(10, models::a_cold_backup_takes_the_place_of_a_primary_without_redundancy),
        quiet(10, models::the_others_serve_on_when_one_of_n_way_active_is_killed),
        quiet(10, models::a_hot_backup_takes_the_place_of_a_killed_primary_of_n_plus_m),
        any(10, models::a_scale_below_what_is_promised_is_done_and_reported),
        machine(15, scheduler::pods_are_placed_by_the_scheduler_of_the_chart_and_by_its_other_replica),
        any(4, nodes::a_primary_that_never_runs_gives_its_place_to_a_cold_backup),
        any(8, refusals::a_field_that_the_cluster_does_not_know_is_reported_and_not_dropped),
        any(5, refusals::a_quota_is_reported_and_the_set_recovers_when_it_is_lifted),
        any(13, refusals::a_namespace_with_restricted_pod_security_admits_every_pod),
        any(8, refusals::a_paused_set_is_not_touched),
        any(20, refusals::a_set_that_comes_no_closer_is_stalled_until_it_does),
        any(8, refusals::a_paused_set_leads_no_client_to_a_pod_that_is_gone),
        any(10, refusals::a_wrong_edit_keeps_no_backup_from_taking_over),
        any(10, refusals::pods_that_their_kubelet_rejects_are_made_again_later_and_later),
        any(7, refusals::a_taken_name_does_not_stop_the_set),
        any(36, sizes::kubectl_scale_and_an_autoscaler_act_on_primaries),
        any(17, manifests::every_example_is_applied_and_acted_on),
        any(29, manifests::the_client_of_the_counter_loses_nothing_when_its_active_is_killed),
        any(25, manifests::the_example_of_a_paired_set_serves_before_and_after_an_active_is_killed),
        any(8, meddling::a_removed_service_and_emptied_addresses_are_restored),
        any(9, meddling::a_service_says_what_load_balancers_read_and_takes_it_back),
        any(7, meddling::a_renamed_service_takes_the_place_of_the_former_one),
        any(15, meddling::pods_that_are_all_deleted_at_once_are_all_made_again),
        any(10, meddling::a_role_label_written_by_hand_ends_in_the_wanted_counts),
        any(15, meddling::a_service_that_had_a_selector_becomes_the_sets_and_leads_to_primaries_only),
        any(65, meddling::addresses_that_somebody_wrote_are_told_with_the_command_that_removes_them),
        any(6, meddling::the_label_of_the_paper_is_put_back_on_a_pod_that_lost_it),
        any(15, meddling::cold_backups_of_a_former_set_are_replaced_before_they_are_needed),
        any(4, meddling::an_orphaned_pod_is_adopted_by_a_set_of_the_same_name),
        any(11, hostile::garbage_at_the_gate_wakes_nobody),
        any(4, kubernetes::kubernetes_leaves_slices_behind_when_a_selector_is_taken_away),
        any(10, kubernetes::kubernetes_counts_budgets_from_primaries_and_asks_none_for_cold_backups),
        any(5, kubernetes::kubernetes_shows_an_annotation_to_a_running_container_within_seconds),
        any(8, kubernetes::kubernetes_shows_how_a_deleted_pod_ended_before_it_is_gone),
        any(8, sizes::a_deleted_set_takes_everything_of_its_with_it),
    ]
}

fn of_pairs() -> Vec<Claim> {
    vec![
        any(9, pairs::a_stateful_set_of_two_becomes_a_pair_with_its_labels_and_services),
        quiet(14, pairs::a_killed_application_is_followed_by_the_standby_s_within_a_moment),
        any(16, pairs::a_deleted_active_hands_over_and_its_successor_becomes_the_standby),
        quiet(7, pairs::no_request_fails_in_a_switchover_that_makes_before_it_breaks),
        quiet(12, pairs::nobody_is_refused_when_a_deleted_pod_hands_over_to_one_that_starts_slowly),
        any(30, pairs::a_deleted_pod_has_its_grace_period_to_end_and_hands_over_then),
        any(30, pairs::an_application_that_ends_again_and_again_is_told_until_it_is_put_right),
        any(10, pairs::agents_need_no_token_of_the_account_that_kubernetes_mounts),
        machine(11, pairs::a_lost_node_costs_no_more_than_the_lease),
        machine(11, pairs::a_lost_node_costs_a_fast_pair_no_more_than_a_promise),
        machine(30, pairs::a_node_is_drained_of_an_active_that_a_budget_protects),
        any(20, domains::a_pair_has_its_pods_in_two_domains_or_no_standby_if_its_group_says_so),
        any(20, pairs::a_pair_whose_pods_were_both_deleted_by_force_serves_again),
        machine(30, pairs::a_spare_takes_the_place_of_a_standby_whose_node_is_lost),
        any(22, workloads::pairs_come_and_go_with_the_replicas_of_a_deployment),
        any(38, workloads::a_stateful_set_grows_one_pod_after_the_other_and_shrinks_from_the_top),
        machine(10, workloads::no_request_fails_when_two_actives_without_standbys_become_one_pair),
        machine(36, workloads::no_request_fails_when_pairs_go_whose_containers_sleep_before_they_end),
        any(20, workloads::a_rollout_of_a_deployment_of_one_pair_reaches_both_pods),
        any(21, workloads::a_rollout_of_a_stateful_set_of_one_pair_reaches_both_pods),
        quiet(49, faults::whatever_befalls_its_active_a_pair_serves_again_and_never_do_two_act),
        machine(
            40,
            faults::whatever_befalls_its_node_or_the_api_server_a_pair_serves_again_and_never_do_two_act,
        ),
        machine(10, faults::an_active_is_followed_at_once_although_the_operator_was_killed_before_it),
        machine(13, faults::several_actives_killed_at_once_are_followed_at_once_each_by_its_standby),
        machine(38, faults::nobody_takes_over_while_the_machine_has_too_much_to_do),
        machine(20, faults::a_fast_pair_whose_agent_is_woken_late_lives_on_writes_and_says_so),
        quiet(11, faults::an_active_is_followed_at_once_while_its_group_grows_by_a_pair),
        machine(20, faults::an_active_is_followed_at_once_while_other_pairs_of_its_group_go),
        machine(29, faults::a_deployment_grows_to_sixteen_pairs_and_shrinks_to_one_and_never_do_two_act),
        any(54, idle::nothing_is_written_about_an_idle_pair_but_that_its_lease_is_held),
        any(60, two_faults::never_do_two_act_when_a_fault_meets_pods_that_do_not_hear_each_other),
        machine(66, two_faults::never_do_two_act_when_a_fault_meets_a_node_that_does_not_hear_the_api_server),
        any(15, tampering::a_deleted_lease_is_made_again_as_it_was_and_nobody_ends),
        machine(
            75,
            tampering::a_lease_that_is_deleted_while_no_operator_looks_is_made_anew_above_the_last_epoch,
        ),
        any(10, tampering::labels_and_addresses_written_by_hand_are_put_right),
        any(12, tampering::a_selector_on_the_service_of_a_group_leaves_no_addresses_behind),
        any(10, tampering::a_pod_may_not_touch_the_lease_of_another_pair),
        any(20, tampering::a_group_that_is_made_anew_goes_on_where_it_was),
        any(32, tampering::permissions_and_keys_that_are_deleted_are_made_again),
        any(16, tampering::nobody_but_its_pods_says_who_acts_in_a_pair),
        any(26, active_sets::roles_of_a_paired_set_follow_the_application_that_acts),
        any(36, active_sets::a_deleted_primary_of_a_paired_set_is_followed_by_its_standby_and_a_woken_one),
        any(17, active_sets::a_set_whose_image_has_the_agent_is_paired_and_wakes_its_cold_backup),
        quiet(20, models::the_standby_takes_the_place_of_a_killed_active_of_2n),
        quiet(30, models::the_standby_of_two_serves_the_state_of_the_active_that_was_killed),
        any(12, active_sets::a_set_that_mounts_the_agents_image_is_paired_and_wakes_its_cold_backup),
        any(22, active_sets::the_pairs_of_a_set_come_and_go_with_its_primaries),
        any(49, active_sets::a_new_template_reaches_every_pod_of_a_paired_set_and_one_of_each_pair_acts),
        quiet(39, record::a_takeover_is_remembered_with_its_reason_and_every_phase_in_order),
        quiet(3, record::the_metrics_of_an_agent_are_for_the_token_of_its_group_alone),
        any(110, redis::a_redis_pair_keeps_every_acknowledged_write_and_only_one_takes_them),
        any(55, replication::a_counter_with_replicated_state_loses_no_acknowledged_increment),
        any(30, replication::a_rollout_of_a_replicated_counter_loses_no_acknowledged_increment),
        any(30, replication::a_rollout_takes_no_active_away_before_its_standby_has_everything),
        any(40, shared_standbys::a_standby_of_two_actives_takes_one_over_and_another_pod_takes_its_other_place),
        any(40, shared_standbys::two_actives_of_one_standby_are_lost_at_once_and_both_serve_again_with_their_state),
        any(67, volumes::pods_that_come_back_with_their_volumes_have_every_acknowledged_increment),
    ]
}

/// What became of a claim.
pub(crate) struct Ended {
    /// What was wrong.
    pub(crate) problem: Option<String>,
    /// What it said meanwhile.
    pub(crate) notes: Vec<String>,
}

/// Holds one claim in a namespace of its own.
pub(crate) async fn hold(bench: &Arc<Bench>, claim: &Arc<Claim>, namespace: &str) -> Ended {
    let mark = bench.begin(namespace).await;
    let ear = Arc::new(Mutex::new(mark));
    let stage = {
        let (bench, namespace, ear) = (Arc::clone(bench), namespace.to_owned(), Arc::clone(&ear));
        let lane = claim.need.lane;
        async move {
            bench.one_operator().await;
            Stage::new(&bench, lane, &namespace, ear).await
        }
    };
    let (held, notes) = match tokio::spawn(stage).await {
        Ok(stage) => {
            let claim = Arc::clone(claim);
            let held = tokio::task::spawn_blocking(move || ((claim.run)(stage), notes::take())).await;
            held.unwrap_or_else(|error| (Err(text_of(&*error.into_panic())), Vec::new()))
        }
        Err(error) => (Err(text_of(&*error.into_panic())), Vec::new()),
    };
    let complaints = bench.complaints(namespace, &mut *ear.lock().await).await;
    bench.end(namespace).await;
    let problem = match held {
        Err(problem) => Some(problem),
        Ok(()) if !complaints.is_empty() => Some(format!("the operator complained: {complaints:#?}")),
        Ok(()) => None,
    };
    if problem.is_none() {
        let namespaces: Api<Namespace> = Api::all(bench.client.clone());
        let _ = namespaces.delete(namespace, &DeleteParams::default()).await;
    }
    Ended { problem, notes }
}

fn text_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}
