//! What is shown: status, history, plan.

use bps_api::{BackupPodSet, HAGroup};
use clap::Parser as _;
use kube::api::{Patch, PatchParams};
use kubectl_bps::arguments::{Format, NamedArguments, StatusArguments, Verb};
use kubectl_bps::cluster::Cluster;
use kubectl_bps::{Arguments, Error, history, plan, status, whatif};
use serde_json::{Value, json};

use super::scene::Scene;

/// A set of one primary and one hot backup.
pub(super) fn set(name: &str) -> Value {
    json!({"apiVersion": "backup.example.com/v1alpha1", "kind": "BackupPodSet", "metadata": {"name": name},
        "spec": {"replicas": 1, "hotBackups": 1,
            "template": {"spec": {"containers": [{"name": "web", "image": "web:1"}]}}}})
}

fn named(name: &str) -> NamedArguments {
    NamedArguments { name: name.to_owned(), output: None }
}

#[tokio::test]
async fn status_shows_both_kinds_as_trees_and_as_an_object() {
    let scene = Scene::set("plugin-status").await;
    let (one, two) = (scene.pod("web-a", 1).await, scene.pod("web-b", 2).await);
    scene.pod("web-c", 3).await;
    scene.pair(0, [("web-a", &one), ("web-b", &two)], true).await;
    scene.create::<BackupPodSet>(set("shop")).await;

    let shown = status::run(&scene.cluster, &StatusArguments::default()).await.unwrap();
    let expected = "\
NAME                        STATE                          NODE   READY   EPOCH
HAGroup plugin-status/web   not seen by the operator yet
├─ pair web-0               Paired                                        1.0
│  ├─ web-a                 active                         -      yes
│  └─ web-b                 standby                        -      yes
└─ spares                   1
   └─ web-c                 spare                          -      yes

NAME                              STATE                          NODE   READY
BackupPodSet plugin-status/shop   not seen by the operator yet
├─ primary                        0 of 1
└─ hot                            0 of 1
";
    assert_eq!(shown, expected);

    let wanted = StatusArguments {
        name: Some("web".into()),
        output: Some(Format::Json),
        ..StatusArguments::default()
    };
    let object: Value = serde_json::from_str(&status::run(&scene.cluster, &wanted).await.unwrap()).unwrap();
    assert_eq!(object["sets"], json!([]));
    let pair = &object["groups"][0]["pairs"][0];
    assert_eq!((&pair["name"], &pair["epoch"]), (&json!("web-0"), &json!("4294967296")));
    assert_eq!(pair["pods"][0]["part"], json!("active"));

    let everywhere = StatusArguments { all_namespaces: true, ..StatusArguments::default() };
    assert!(status::run(&scene.cluster, &everywhere).await.unwrap().contains("HAGroup plugin-status/web"));
}

#[tokio::test]
async fn whatif_tells_what_becomes_of_a_set_and_ends_with_one_if_it_is_lost() {
    let scene = Scene::set("plugin-whatif").await;
    scene.create::<BackupPodSet>(set("shop")).await;
    let folder = tempfile::tempdir().expect("a folder");
    let saved = folder.path().join("shop.yaml");
    let ask = |words: &[&str]| {
        let words = [&["kubectl-bps", "whatif"], words].concat();
        let Verb::Whatif(wanted) = Arguments::try_parse_from(words).expect("a command line").verb else {
            panic!("it is the verb")
        };
        wanted
    };
    let connect = || async {
        let Cluster { client, namespace } = &scene.cluster;
        Ok(Cluster { client: client.clone(), namespace: namespace.clone() })
    };

    let path = saved.display().to_string();
    // No node of this cluster may take Pods that ask for what none has.
    let told = whatif::run(&ask(&["shop", "--save", &path]), connect).await;
    let told = told.as_ref().map_or_else(Error::done, String::as_str).to_owned();
    assert!(told.starts_with("BackupPodSet plugin-whatif/shop: nothing is lost\n"), "{told}");
    assert_eq!(told.matches("  - operator: create shop-").count(), 2, "{told}");

    // The same again without a cluster, and with fewer primaries none is missing.
    let nowhere = || async { panic!("no cluster is asked") };
    let again = whatif::run(&ask(&["--from", &path]), nowhere).await;
    assert_eq!(again.as_ref().map_or_else(Error::done, String::as_str), told);
    let fewer =
        whatif::run(&ask(&["--from", &path, "--scale-in", "1"]), nowhere).await.expect("none is wanted");
    assert!(fewer.contains("The set outlives this: in the end 0 of 0 primaries serve."), "{fewer}");

    let refused = whatif::run(&ask(&["shop", "--node", "nowhere"]), connect).await.expect_err("no such node");
    assert_eq!(refused.exit_code(), 2);
    let group = whatif::run(&ask(&["hag/web"]), connect).await.expect_err("it is a group");
    assert!(group.to_string().contains("this verb is about sets"), "{group}");
}

#[tokio::test]
async fn plan_says_what_the_operator_would_do() {
    let scene = Scene::set("plugin-plan").await;
    let waiting = plan::run(&scene.cluster, &named("web")).await.unwrap();
    assert!(waiting.starts_with("HAGroup plugin-plan/web\n\nNothing is to be done"), "{waiting}");

    scene.pod("web-a", 1).await;
    scene.pod("web-b", 2).await;
    let founded = plan::run(&scene.cluster, &named("web")).await.unwrap();
    let found = "  - make the pair web-0 of web-a and web-b (epochs above 0.0) (PodsUnpaired: ";
    assert!(founded.contains(found), "{founded}");

    scene.create::<BackupPodSet>(set("shop")).await;
    let created = plan::run(&scene.cluster, &named("bps/shop")).await.unwrap();
    assert_eq!(created.matches("  - create shop-").count(), 2, "{created}");
    assert!(created.contains("which keys of gates it has"), "{created}");
}

#[tokio::test]
async fn history_shows_what_the_status_remembers() {
    let scene = Scene::set("plugin-history").await;
    let none = history::run(&scene.cluster, &named("web")).await.unwrap();
    assert_eq!(none, "HAGroup web: the operator has seen no takeover.\n");
    let takeover = json!({"pair": "web-0", "from": "web-a", "to": "web-b", "epoch": "4294967297", "by": "Handover",
        "time": "2026-01-02T03:04:05.678000Z", "reason": "SwitchOver", "phases": {"detected": 0, "lease": 7}});
    let patch = Patch::Merge(json!({"status": {"takeovers": [takeover]}}));
    let groups = scene.cluster.api::<HAGroup>();
    groups.patch_status("web", &PatchParams::default(), &patch).await.expect("a status");
    let expected = "\
TIME                       PAIR    FROM    TO      EPOCH   BY         REASON
2026-01-02T03:04:05.678Z   web-0   web-a   web-b   1.1     Handover   SwitchOver

TIME                       TO      DETECTED   FENCED   LEASE   PROMOTED   PUBLISHED   REPAIRED
2026-01-02T03:04:05.678Z   web-b   0 ms       -        7 ms    -          -           -
";
    assert_eq!(history::run(&scene.cluster, &named("hag/web")).await.unwrap(), expected);
    let as_json = NamedArguments { output: Some(Format::Json), ..named("hag/web") };
    let object: Value = serde_json::from_str(&history::run(&scene.cluster, &as_json).await.unwrap()).unwrap();
    assert_eq!(object, json!({"takeovers": [takeover]}));
}
