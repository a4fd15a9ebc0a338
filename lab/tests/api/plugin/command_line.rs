//! The whole way from the command line to the answer.

use backuppodset::plugin::{Arguments, Error, run};
use clap::Parser as _;

use super::scene::Scene;
use crate::server;

async fn said(words: &[&str]) -> Result<String, Error> {
    let kubeconfig = server::kubeconfig().await.display().to_string();
    let words = [&["kubectl-bps", "--kubeconfig", kubeconfig.as_str()], words].concat();
    run(Arguments::try_parse_from(words).expect("a command line")).await
}

#[tokio::test]
async fn kubeconfig_namespace_and_context_are_those_of_kubectl() {
    let scene = Scene::set("plugin-command").await;
    let namespace = scene.cluster.namespace.as_str();
    let tree = said(&["status", "hag/web", "-n", namespace]).await.unwrap();
    assert!(tree.contains("HAGroup plugin-command/web"), "{tree}");
    let yaml = said(&["-n", namespace, "status", "-o", "yaml"]).await.unwrap();
    assert!(yaml.starts_with("groups:\n- namespace: plugin-command\n  name: web\n"), "{yaml}");
    assert!(said(&["pause", "web", "-n", namespace]).await.unwrap().starts_with("HAGroup web: paused"));
    assert!(said(&["plan", "web", "-n", namespace]).await.unwrap().contains("the group is paused"));
    assert_eq!(said(&["resume", "web", "-n", namespace]).await.unwrap(), "HAGroup web: resumed\n");
    let nothing = said(&["status", "-n", "plugin-nowhere"]).await.unwrap();
    assert_eq!(nothing, "No HAGroup and no BackupPodSet in namespace plugin-nowhere.\n");

    let refused = said(&["status", "web", "-n", "plugin-nowhere"]).await.expect_err("nobody is called so");
    assert_eq!(refused.exit_code(), 1);
    let refused = said(&["status", "--context", "nowhere"]).await.expect_err("there is no such context");
    assert!(
        refused.chain().starts_with("use the kubeconfig; set KUBECONFIG, or give --kubeconfig and --context")
    );
}

#[tokio::test]
async fn what_needs_no_cluster_asks_none() {
    let run = async |words: &[&str]| run(Arguments::try_parse_from(words).expect("a command line")).await;
    let script = run(&["kubectl-bps", "completion", "bash"]).await.unwrap();
    assert_eq!(completed(&script, &["switch"]), "switchover");
    assert_eq!(completed(&script, &["status", "--out"]), "--output");
    assert_eq!(completed(&script, &["fence", "o"]), "on off");
    let version = run(&["kubectl-bps", "version"]).await.unwrap();
    assert_eq!(version, format!("kubectl-bps {}\n", env!("CARGO_PKG_VERSION")));
}

/// What Bash offers for the last of the words after the program's name.
fn completed(script: &str, words: &[&str]) -> String {
    let last = words.last().expect("something to complete");
    let offer = format!(
        r#"{script}
complete -p kubectl-bps > /dev/null || exit 1
COMP_WORDS=(kubectl-bps {words}); COMP_CWORD={place}
_kubectl__bps kubectl-bps {last} ""
echo "${{COMPREPLY[*]}}""#,
        words = words.join(" "),
        place = words.len(),
    );
    let output = std::process::Command::new("bash").args(["-c", &offer]).output().expect("bash runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
