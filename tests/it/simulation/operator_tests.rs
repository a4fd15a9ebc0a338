//! Tests of the real operator in the simulated cluster.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bps_api::keys;
use bps_runtime::metrics::Metrics;
use kube::Client;
use kube::client::Body;
use tower::BoxError;

use crate::simulation::{
    explore::{Report, explore, sampled, singles},
    fault::Plan,
    kinds::{LEASES, SECRETS},
    monkey::Random,
    operator::{self, NAMESPACE, OperatorReplica},
    operator_cases::{CASES, Case, Duo},
    operator_oracle::forms,
    operator_steps as steps,
    oracle::Invariant,
    run::{Operator, Outcome, Scenario, Start, run},
    world::{Key, World},
};

/// What the environment asks for; see the head of `main.rs`.
#[expect(clippy::disallowed_methods, reason = "how much is tried is the tester's choice")]
fn asked(variable: &str) -> String {
    std::env::var(variable).unwrap_or_default()
}

fn explore_case(case: &dyn Scenario) -> Report {
    let depth = asked("SIM_DEPTH");
    explore(case, |golden| {
        let mut plans = singles(golden);
        let pairs = match depth.as_str() {
            "singles" => 0,
            "pairs" => PAIRS,
            number => {
                let count = number.parse().unwrap_or(SAMPLE);
                plans = thinned(plans, count);
                count / 2
            }
        };
        let seed = u64::try_from(pairs).expect("small");
        plans.extend(sampled(golden, (seed, 2), pairs));
        plans.extend(sampled(golden, (seed, 3), pairs / 2));
        plans
    })
}

/// A seeded choice among plans.
fn thinned(mut plans: Vec<Plan>, count: usize) -> Vec<Plan> {
    let mut random = Random(u64::try_from(count).expect("small"));
    let kept = (0..count.min(plans.len())).map(|_| {
        let chosen = random.below(plans.len());
        plans.swap_remove(chosen)
    });
    kept.collect()
}

/// Single faults that are tried in each scenario unless more is asked for.
const SAMPLE: usize = 3;

/// Pairs that are tried in each scenario when they are asked for.
const PAIRS: usize = 400;

#[test]
fn every_scenario_comes_to_rest_without_faults() {
    let only = asked("SIM_ONLY");
    let plan: Plan = asked("SIM_PLAN").parse().expect("a plan");
    let mut bad = Vec::new();
    for case in CASES.iter().filter(|case| only.is_empty() || case.name == only) {
        let outcome = run(case, &plan);
        println!(
            "{}: writes={} reads={} events={} background={} converged={} violations={:?}",
            case.name,
            outcome.writes,
            outcome.reads,
            outcome.events,
            outcome.background,
            outcome.has_converged,
            outcome.violations
        );
        if !only.is_empty() {
            println!("{}\n{}", outcome.journal.join("\n"), outcome.end);
        }
        if !outcome.has_converged || !outcome.violations.is_empty() {
            bad.push(case.name);
        }
    }
    assert_eq!(bad, Vec::<&str>::new());
}

/// Schedules in which the operator once went astray, each with the mistake that it found.
const PINNED: &[(&str, &str)] = &[
    // A lost event of a Pod that became ready was made up for by nothing before the next complete list.
    ("create", "e16:drop"),
    ("delete-primary", "e18:drop"),
    // Two primaries were replaced at once: more Pods than a rollout may have.
    ("rollout", "w33:crash-after"),
    ("rollout", "w35:409"),
    // A refused ControllerRevision was taken for one that exists, and the history stayed without it.
    ("create", "w11:409"),
];

#[test]
fn what_once_led_a_scenario_astray_does_not_any_more() {
    for (name, plan) in PINNED {
        let plan: Plan = plan.parse().expect("a plan");
        let report = explore(&case(name), |_| vec![plan.clone()]);
        assert!(report.is_clean(), "{report}");
    }
}

#[test]
fn no_fault_leads_any_scenario_astray() {
    explore_all(false);
}

#[test]
fn no_fault_leads_any_scenario_astray_while_others_move_between_the_writes() {
    explore_all(true);
}

fn explore_all(is_interleaved: bool) {
    let only = asked("SIM_ONLY");
    let mut bad = Vec::new();
    for case in CASES.iter().filter(|case| only.is_empty() || case.name == only) {
        let report = explore_case(&Case { is_interleaved, ..*case });
        println!("{report}");
        if !report.is_clean() {
            bad.push(report.to_string());
        }
    }
    assert!(bad.is_empty(), "{}", bad.concat());
}

/// Two operators: with one Lease that is taken away from its holder, and with a Lease each, so that both lead.
const DUOS: [Duo; 3] = [
    Duo {
        name: "lease-deleted",
        namespaces: [NAMESPACE, NAMESPACE],
        script: &[steps::delete_lease, steps::scale_to_hot],
    },
    Duo {
        name: "lease-given-away",
        namespaces: [NAMESPACE, NAMESPACE],
        script: &[steps::give_lease_away, steps::recover],
    },
    Duo {
        name: "two-leaders",
        namespaces: [NAMESPACE, "second-system"],
        script: &[
            steps::delete_primary,
            steps::crash_primary,
            steps::recover,
            steps::new_image,
            steps::scale_to_hot,
        ],
    },
];

#[test]
fn two_operators_at_once_break_nothing() {
    let mut bad = Vec::new();
    for duo in &DUOS {
        let report = explore_case(duo);
        println!("{report}");
        if !report.is_clean() {
            bad.push(report.to_string());
        }
    }
    assert!(bad.is_empty(), "{}", bad.concat());
}

/// Runs a case with its own metrics; answers them as text beside the outcome.
struct Metered {
    case: Case,
    metrics: Metrics,
}

impl Scenario for Metered {
    fn name(&self) -> String {
        self.case.name()
    }

    fn build(&self, world: &mut World) {
        self.case.build(world);
    }

    fn script(&self) -> Vec<fn(&mut World)> {
        self.case.script()
    }

    fn start(&self, start: Start) -> Operator {
        operator::task(start, operator::settings(NAMESPACE, "bps-operator-0"), self.metrics.clone())
    }

    fn oracle(&self) -> Vec<Box<dyn Invariant>> {
        self.case.oracle()
    }

    fn patience(&self, plan: &Plan) -> Duration {
        self.case.patience(plan)
    }

    fn pace(&self) -> Option<Duration> {
        Some(Duration::from_millis(3))
    }
}

fn case(name: &str) -> Case {
    *CASES.iter().find(|case| case.name == name).expect("a scenario of that name")
}

#[test]
fn two_of_each_tier_are_created_with_few_reconciles_and_no_conflict() {
    let metered = Metered { case: case("create"), metrics: Metrics::new("simulated") };
    let outcome = run(&metered, &Plan::default());
    let text = metered.metrics.encode().expect("metrics are text");
    let is_reconcile = |line: &&str| line.starts_with("controller_runtime_reconcile_total{");
    let counts = text.lines().filter(is_reconcile).filter_map(|line| line.rsplit(' ').next());
    let reconciles: u32 = counts.filter_map(|count| count.parse::<u32>().ok()).sum();
    let conflicts = outcome.journal.iter().filter(|line| line.ends_with("-> 409")).count();
    println!("reconciles={reconciles} writes={} conflicts={conflicts}", outcome.writes);
    let writes: Vec<&String> = outcome.journal.iter().filter(|line| line.starts_with('w')).collect();
    println!("{writes:#?}");
    assert!(outcome.has_converged && outcome.violations.is_empty(), "{:?}", outcome.violations);
    assert_eq!(conflicts, 0);
    assert!(reconciles <= RECONCILES_MAX, "{reconciles}");
}

/// Most reconciles for the start of a set with two Pods in each tier.
const RECONCILES_MAX: u32 = 8;

/// Requests that write slices, in order.
fn slice_writes(outcome: &Outcome) -> usize {
    let is_write = |line: &&String| line.starts_with('w') && line.contains(" endpointslices/");
    outcome.journal.iter().filter(is_write).count()
}

#[test]
fn a_switch_of_clients_is_one_write() {
    let before = run(&case("crash-last").cut(0), &Plan::default());
    let after = run(&case("crash-last").cut(1), &Plan::default());
    assert_eq!((slice_writes(&before), slice_writes(&after)), (1, 2));
}

/// A case of which only one thing of the end is looked at.
struct Reading {
    case: Case,
    read: fn(&World) -> String,
}

impl Scenario for Reading {
    fn name(&self) -> String {
        self.case.name()
    }

    fn build(&self, world: &mut World) {
        self.case.build(world);
    }

    fn script(&self) -> Vec<fn(&mut World)> {
        self.case.script()
    }

    fn start(&self, start: Start) -> Operator {
        self.case.start(start)
    }

    fn forgives_refusals(&self) -> bool {
        true
    }

    fn patience(&self, plan: &Plan) -> Duration {
        self.case.patience(plan)
    }

    fn fingerprint(&self, world: &World) -> String {
        (self.read)(world)
    }
}

#[test]
fn a_set_whose_pods_are_refused_delays_no_other() {
    let conditions = |world: &World| {
        let set = world.object(&steps::web()).expect("it is there");
        set["status"]["conditions"].to_string()
    };
    let beside = Reading { case: case("poison").cut(0), read: conditions };
    let alone = Reading { case: case("crash-last").cut(0), read: conditions };
    let (beside, alone) = (run(&beside, &Plan::default()), run(&alone, &Plan::default()));
    // The conditions carry their times.
    assert!(alone.end.contains("lastTransitionTime"), "{}", alone.end);
    assert_eq!(beside.end, alone.end);
}

/// Most Pods that are made in a run, for three that admission changes: all of them in the first look, then as many after each
/// pause, which grows from 20 s.
const CREATIONS_IN_VAIN_MAX: usize = 20;

#[test]
fn pods_that_admission_changes_are_made_again_ever_later() {
    let case = Case { build: steps::under_lasting_label_policy, script: &[], ..case("label-policy") };
    let outcome = run(&case, &Plan::default());
    let creations = outcome.journal.iter().filter(|line| line.contains("create pods/")).count();

    assert!((3..=CREATIONS_IN_VAIN_MAX).contains(&creations), "{creations}");
}

/// Replicas for one Lease, the first of which is refused every list of what belongs to groups.
struct Uninformed {
    replicas: &'static [&'static str],
}

/// The client of a replica that is refused them.
fn uninformed(client: Client) -> Client {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let is_of_groups =
            request.uri().query().is_some_and(|query| query.contains("backup.example.com%2Fgroup"));
        let client = client.clone();
        async move {
            if is_of_groups {
                return Err(BoxError::from("no route to the server"));
            }
            Ok(client.send(request).await?)
        }
    });
    Client::new(service, NAMESPACE)
}

impl Scenario for Uninformed {
    fn name(&self) -> String {
        format!("uninformed of {}", self.replicas.len())
    }

    fn build(&self, world: &mut World) {
        case("create").build(world);
    }

    fn start(&self, start: Start) -> Operator {
        let all = self.replicas.iter().enumerate().map(|(index, name)| {
            let client = if index == 0 { uninformed(start.client.clone()) } else { start.client.clone() };
            OperatorReplica {
                begin: Start { client, ..start.clone() },
                settings: operator::settings(NAMESPACE, name),
            }
        });
        operator::replicas(all.collect())
    }

    fn fingerprint(&self, world: &World) -> String {
        let lease = world.object(&Key::new(&LEASES, NAMESPACE, keys::LEASE_LEADER)).expect("it is there");
        lease["spec"]["holderIdentity"].to_string()
    }

    fn patience(&self, plan: &Plan) -> Duration {
        case("create").patience(plan)
    }
}

#[test]
fn a_replica_that_knows_no_groups_leads_only_where_there_is_no_other() {
    for (replicas, leader) in [(&["deaf", "well"][..], "well"), (&["deaf"][..], "deaf")] {
        let outcome = run(&Uninformed { replicas }, &Plan::default());
        assert!(outcome.has_converged && outcome.violations.is_empty(), "{:?}", outcome.violations);
        assert!(outcome.end.contains(leader), "{} of {replicas:?}", outcome.end);
        let creations = outcome.journal.iter().filter(|line| line.contains("create pods/")).count();
        assert_eq!(creations, 6, "sets are served without groups");
    }
}

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no writer panics").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Set in the process of its own that looks at logs.
const ALONE: &str = "SIM_ALONE";

/// In a process of its own: tracing remembers for a whole process that nobody listens to a line which another test's
/// thread, without a subscriber, reaches first.
#[test]
fn no_byte_of_a_key_is_logged() {
    if std::env::var_os(ALONE).is_none() {
        let program = std::env::current_exe().expect("this test has a program");
        let name = "simulation::operator_tests::no_byte_of_a_key_is_logged";
        let alone = std::process::Command::new(program).args([name, "--exact"]).env(ALONE, "1").output();
        let alone = alone.expect("the program starts again");
        let said = String::from_utf8_lossy(&alone.stdout);
        assert!(alone.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    look_for_keys_in_the_log();
}

fn look_for_keys_in_the_log() {
    let keys = |world: &World| {
        let secret = Key::new(&SECRETS, NAMESPACE, "bps-wakeup-keys");
        forms(world.object(&secret).expect("the operator made it")).join("\n")
    };
    let reading = Reading { case: case("gate-refuses"), read: keys };
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let outcome = tracing::subscriber::with_default(subscriber, || run(&reading, &Plan::default()));
    let text = String::from_utf8(log.0.lock().expect("no writer panics").clone()).expect("logs are text");
    assert!(text.contains("Step was refused"), "the log was not caught");
    let found: Vec<&str> = outcome.end.lines().filter(|form| text.contains(form)).collect();
    assert!(found.is_empty(), "{} forms of keys in the log", found.len());
    assert_eq!(outcome.end.lines().count(), 6, "two keys in three forms");
}
