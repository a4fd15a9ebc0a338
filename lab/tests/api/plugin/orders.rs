//! Orders: switchover, fence, pause.

use std::time::Duration;

use bps_api::{BackupPodSet, HAGroup, keys};
use bps_protocol::Epoch;
use kube::Resource as _;
use kubectl_bps::arguments::{FenceArguments, FenceVerb, Format, NamedArguments, SwitchoverArguments};
use kubectl_bps::{Error, fence, pause, switchover};
use serde_json::{Value, json};

use super::scene::{GROUP, Scene};

const FIRST: Epoch = Epoch { term: 1, sequence: 0 };
const SECOND: Epoch = Epoch { term: 1, sequence: 1 };
const THIRD: Epoch = Epoch { term: 1, sequence: 2 };

fn wanted() -> SwitchoverArguments {
    let timeout = Some(Duration::from_secs(30));
    SwitchoverArguments { group: GROUP.into(), pair: None, timeout, wait: true, output: None }
}

fn refusal(answer: Result<String, Error>) -> (u8, String) {
    let error = answer.expect_err("it is refused");
    (error.exit_code(), error.chain())
}

#[tokio::test]
async fn a_switchover_is_over_when_lease_or_slice_show_the_other_pod() {
    let scene = Scene::set("plugin-switchover").await;
    let (one, two) = (scene.pod("web-a", 1).await, scene.pod("web-b", 2).await);
    scene.pair(0, [("web-a", &one), ("web-b", &two)], true).await;

    let order = wanted();
    let (said, ()) = tokio::join!(
        switchover::run(&scene.cluster, &order),
        scene.hand_over_by_lease("web-0", (FIRST, ("web-b", &two)))
    );
    let said = said.unwrap();
    assert!(said.starts_with("web-0: web-a handed over to web-b in "), "{said}");
    assert!(said.ends_with(" ms (epoch 1.0 -> 1.1)\n"), "{said}");

    let (said, ()) = tokio::join!(
        switchover::run(&scene.cluster, &order),
        scene.hand_over_by_slice("web-0", (SECOND, ("web-a", &one)))
    );
    assert!(said.unwrap().ends_with("(epoch 1.1 -> 1.2)\n"));

    // The Lease is behind: it still names web-b in epoch 1.1.
    let (said, ()) = tokio::join!(
        switchover::run(&scene.cluster, &order),
        scene.hand_over_by_slice("web-0", (THIRD, ("web-b", &two)))
    );
    let said = said.unwrap();
    assert!(said.starts_with("web-0: web-a handed over to web-b in "), "{said}");
    assert!(said.ends_with("(epoch 1.2 -> 1.3)\n"), "{said}");
}

#[tokio::test]
async fn a_tenure_that_ends_before_it_reads_the_order_is_ordered_again() {
    let scene = Scene::set("plugin-again").await;
    let (one, two) = (scene.pod("web-a", 1).await, scene.pod("web-b", 2).await);
    scene.pair(0, [("web-a", &one), ("web-b", &two)], true).await;
    let order = wanted();
    let again = async {
        // The same Pod begins another tenure, to which the first order means nothing.
        scene.hand_over_by_lease("web-0", (FIRST, ("web-a", &one))).await;
        scene.hand_over_by_lease("web-0", (SECOND, ("web-b", &two))).await;
    };
    let (said, ()) = tokio::join!(switchover::run(&scene.cluster, &order), again);
    assert!(said.unwrap().ends_with("(epoch 1.0 -> 1.2)\n"));
}

#[tokio::test]
async fn a_switchover_is_not_waited_for_once_its_lease_is_gone() {
    let scene = Scene::set("plugin-order-lost").await;
    let (one, two) = (scene.pod("web-a", 1).await, scene.pod("web-b", 2).await);
    scene.pair(0, [("web-a", &one), ("web-b", &two)], true).await;
    let order = wanted();
    let delete = scene.delete_lease_once_ordered("web-0", FIRST);
    let (said, ()) = tokio::join!(switchover::run(&scene.cluster, &order), delete);
    let (code, said) = refusal(said);
    assert_eq!((code, said.starts_with("read Lease web-0: ")), (1, true), "{said}");
}

#[tokio::test]
async fn a_switchover_that_cannot_be_is_refused_with_what_to_do_instead() {
    let scene = Scene::set("plugin-refused").await;
    let run = async |wanted: &SwitchoverArguments| switchover::run(&scene.cluster, wanted).await;
    let (code, said) = refusal(run(&wanted()).await);
    assert_eq!((code, said.starts_with("group web has no pair yet")), (1, true), "{said}");
    let nobody = SwitchoverArguments { group: "gone".into(), ..wanted() };
    assert!(refusal(run(&nobody).await).1.starts_with("no HAGroup is called \"gone\""));

    let (one, two) = (scene.pod("web-a", 1).await, scene.pod("web-b", 2).await);
    scene.pair(0, [("web-a", &one), ("web-b", &two)], true).await;
    scene.pair(1, [("web-c", "00000000-0000-4000-8000-000000000001"), ("web-b", &two)], false).await;
    let (code, said) = refusal(run(&wanted()).await);
    assert_eq!(
        (code, said.as_str()),
        (2, "group web has several pairs: say which one by --pair, one of 0, 1")
    );
    let (code, said) = refusal(run(&SwitchoverArguments { pair: Some(7), ..wanted() }).await);
    assert_eq!((code, said.as_str()), (2, "group web has no pair 7: choose one of 0, 1"));
    let (code, said) = refusal(run(&SwitchoverArguments { pair: Some(1), ..wanted() }).await);
    assert_eq!((code, said.starts_with("nobody acts in web-1")), (1, true), "{said}");

    // Nobody plays the agent.
    let zero = SwitchoverArguments { pair: Some(0), timeout: Some(Duration::from_millis(300)), ..wanted() };
    let (code, said) = refusal(run(&zero).await);
    assert_eq!((code, said.starts_with("no other Pod acts in web-0 after 0.3 s")), (3, true), "{said}");
    let told = run(&SwitchoverArguments { wait: false, ..zero.clone() }).await.unwrap();
    assert_eq!(told, "web-0: web-a was told to hand over to web-b\n");
    let object = SwitchoverArguments { wait: false, output: Some(Format::Json), ..zero.clone() };
    let told: Value = serde_json::from_str(&run(&object).await.unwrap()).unwrap();
    assert_eq!(
        told,
        json!({"pair": "web-0", "from": "web-a", "to": "web-b", "epoch": u64::from(FIRST).to_string()})
    );
    assert_eq!(scene.lease("web-0").await.orders.switch_over, Some(FIRST));

    fence::run(&scene.cluster, &FenceVerb::On(pods(&["web-b"]))).await.unwrap();
    assert!(refusal(run(&zero).await).1.starts_with("the standby web-b of web-0 is fenced"));
    scene.delete_pod("web-b").await;
    let said = refusal(run(&zero).await).1;
    assert!(said.starts_with("web-0 has no standby (web-b is gone or does not run)"), "{said}");
}

fn pods(names: &[&str]) -> FenceArguments {
    FenceArguments { pods: names.iter().map(|name| (*name).to_owned()).collect(), output: None }
}

#[tokio::test]
async fn a_fence_is_set_and_taken_back_beside_other_writers() {
    let scene = Scene::set("plugin-fence").await;
    let (one, two) = (scene.pod("web-a", 1).await, scene.pod("web-b", 2).await);
    scene.pod("web-c", 3).await;
    scene.labelled_pod("other", (4, json!({}))).await;
    scene.pair(0, [("web-a", &one), ("web-b", &two)], true).await;
    let run = async |verb: FenceVerb| fence::run(&scene.cluster, &verb).await;
    let list = FenceVerb::List { all_namespaces: false, output: None };
    assert_eq!(run(list.clone()).await.unwrap(), "No Pod is fenced.\n");

    // An agent writes every now and then.
    let writer = async {
        for writes in 2..12 {
            let annotations = json!({(keys::ANNOTATION_HA_WRITES): writes.to_string()});
            scene.patch_lease("web-0", json!({"metadata": {"annotations": annotations}})).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let (said, ()) = tokio::join!(run(FenceVerb::On(pods(&["web-a", "web-b"]))), writer);
    assert_eq!(
        said.unwrap(),
        "web-0: web-a is fenced: it ends its application, and web-b takes over if it runs\n\
         web-0: web-b is fenced: web-a is fenced too, so nobody acts until one of them is unfenced\n"
    );
    let record = scene.lease("web-0").await;
    assert_eq!((record.orders.fenced.len(), record.lease.writes), (2, 11));
    let objects = FenceVerb::List { all_namespaces: false, output: Some(Format::Json) };
    let told: Value = serde_json::from_str(&run(objects).await.unwrap()).unwrap();
    let fence = |pod, part, uid| json!({"namespace": scene.cluster.namespace, "pair": "web-0", "pod": pod, "part": part, "uid": uid});
    assert_eq!(told, json!({"fences": [fence("web-a", "active", &one), fence("web-b", "standby", &two)]}));
    assert_eq!(run(FenceVerb::On(pods(&["web-a"]))).await.unwrap(), "web-0: web-a is already fenced\n");
    let listed = run(list.clone()).await.unwrap();
    assert!(listed.contains("web-a   active") && listed.contains("web-b   standby"), "{listed}");

    // One that is gone can be unfenced too.
    scene.delete_pod("web-b").await;
    let said = run(FenceVerb::Off(pods(&["web-b", &one]))).await.unwrap();
    assert_eq!(
        said,
        "web-0: web-b is not fenced any more: it may act again; the other member is still fenced\n\
         web-0: web-a is not fenced any more: it may act again\n"
    );
    assert_eq!(run(list).await.unwrap(), "No Pod is fenced.\n");
    let objects = FenceArguments { output: Some(Format::Json), ..pods(&["web-a"]) };
    let told: Value = serde_json::from_str(&run(FenceVerb::On(objects)).await.unwrap()).unwrap();
    let outcome = json!({"namespace": "plugin-fence", "pair": "web-0", "pod": "web-a", "uid": one,
        "fenced": true, "changed": true});
    assert_eq!(told, json!({"pods": [outcome]}));

    let said = refusal(run(FenceVerb::On(pods(&["web-c"]))).await).1;
    assert!(said.starts_with("Pod web-c is in no pair of group web"), "{said}");
    let said = refusal(run(FenceVerb::On(pods(&["other"]))).await).1;
    assert!(said.starts_with("Pod other belongs to no group"), "{said}");
    let said = refusal(run(FenceVerb::On(pods(&["gone"]))).await).1;
    assert!(said.starts_with("no Pod is called \"gone\" in namespace \"plugin-fence\""), "{said}");
}

#[tokio::test]
async fn a_pause_reaches_the_object_that_is_meant() {
    let scene = Scene::set("plugin-pause").await;
    scene.create::<BackupPodSet>(super::views::set("web")).await;
    scene.create::<BackupPodSet>(super::views::set("shop")).await;
    let paused = async |name: &str| {
        let group =
            scene.cluster.api::<HAGroup>().get_opt(name).await.unwrap().map(|group| group.spec.paused);
        let set = scene.cluster.api::<BackupPodSet>().get_opt(name).await.unwrap().map(|set| set.spec.paused);
        (group, set)
    };
    let run = async |name: &str, is_paused| {
        let wanted = NamedArguments { name: name.into(), output: None };
        pause::run(&scene.cluster, &wanted, is_paused).await
    };
    let (code, said) = refusal(run("web", true).await);
    assert_eq!((code, said.as_str()), (2, "two objects are called \"web\": write hag/web or bps/web"));
    assert_eq!(refusal(run("sts/web", true).await).0, 2);
    assert_eq!(refusal(run("gone", true).await).0, 1);

    let said = run("hag/web", true).await.unwrap();
    assert!(said.starts_with("HAGroup web: paused: pairs stay as they are, and failovers go on"), "{said}");
    assert_eq!(paused("web").await, (Some(true), Some(false)));
    assert_eq!(run("hag/web", true).await.unwrap(), "HAGroup web: already paused\n");
    run("shop", true).await.unwrap();
    assert_eq!(paused("shop").await, (None, Some(true)));
    assert_eq!(run("shop", false).await.unwrap(), "BackupPodSet shop: resumed\n");
    assert_eq!(run("bps/web", false).await.unwrap(), "BackupPodSet web: not paused\n");
    let mut pairs = super::views::set("pairs");
    pairs["spec"]["activeStandby"] = json!({});
    pairs["spec"]["template"]["spec"]["containers"][0]["command"] = json!(["/web"]);
    scene.create::<BackupPodSet>(pairs).await;
    let said = run("bps/pairs", true).await.unwrap();
    assert!(said.contains("failovers go on") && !said.contains("no failover"), "{said}");
    let object = NamedArguments { name: "bps/web".into(), output: Some(Format::Json) };
    let told: Value =
        serde_json::from_str(&pause::run(&scene.cluster, &object, true).await.unwrap()).unwrap();
    let outcome = json!({"kind": "BackupPodSet", "namespace": "plugin-pause", "name": "web", "paused": true,
        "changed": true});
    assert_eq!(told, outcome);

    let set = scene.cluster.api::<BackupPodSet>().get("shop").await.unwrap();
    let owner = set.controller_owner_ref(&()).expect("a uid");
    let own = json!({"apiVersion": "backup.example.com/v1alpha1", "kind": "HAGroup",
        "metadata": {"name": "shop", "ownerReferences": [owner]}, "spec": {}});
    scene.create::<HAGroup>(own).await;
    let (code, said) = refusal(run("hag/shop", true).await);
    assert!(code == 2 && said.contains("write bps/shop"), "{said}");
    assert_eq!(paused("shop").await, (Some(false), Some(false)));
}
