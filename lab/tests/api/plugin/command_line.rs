//! The whole way from the command line to the answer.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use clap::Parser as _;
use kubectl_bps::{Arguments, Error, run};

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
    assert_eq!(completed(&script, &["whatif", "web", "--sub"]), "--subset");
    let asked = run(&["kubectl-bps", "completion", "kubectl"]).await.unwrap();
    assert_eq!(asked_by_kubectl((&asked, &script), &["switch"]), "switchover\n:0\n");
    assert_eq!(asked_by_kubectl((&asked, &script), &["fence", ""]), "on\noff\nlist\nhelp\n:0\n");
    assert_eq!(asked_by_kubectl((&asked, &script), &["status", "--out"]), "--output\n:0\n");
    assert_eq!(asked_by_kubectl((&asked, &script), &["nothing"]), ":0\n");
    let version = run(&["kubectl-bps", "version"]).await.unwrap();
    assert_eq!(version, format!("kubectl-bps {}\n", env!("CARGO_PKG_VERSION")));
}

/// What the program for kubectl prints, beside a `kubectl-bps` that prints its completions for Bash.
fn asked_by_kubectl((program, completions): (&str, &str), words: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("it is written");
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("it may be run");
        path
    };
    write("kubectl-bps", &format!("#!/bin/bash\ncat <<'END'\n{completions}\nEND\n"));
    let program = write("kubectl_complete-bps", program);
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = std::process::Command::new(program);
    command.args(words).env("PATH", format!("{}:{path}", folder.path().display()));
    String::from_utf8(command.output().expect("bash runs").stdout).expect("text")
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
