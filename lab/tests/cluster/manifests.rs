//! Claims about the files that users copy.

use std::path::{Path, PathBuf};

use backuppodset::api::BackupPodSet;
use backuppodset::manifests::{AgentSource, Injection, inject};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use lab::image::AGENT_IMAGE;
use serde_json::json;

use crate::bench::ROOT;
use crate::example::{Example, example};
use crate::stage::{ROLES, Stage, uids};
use crate::wait::role;

pub(crate) async fn every_example_is_applied_and_acted_on(stage: Stage) {
    let mut files: Vec<_> = std::fs::read_dir(Path::new(ROOT).join("examples"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    for file in &files {
        stage.kubectl(&["apply", "--server-side", "-f", file.to_str().unwrap()]);
    }
    let api: Api<BackupPodSet> = stage.api();
    for set in api.list(&ListParams::default()).await.unwrap() {
        // Their images cannot be had here: it is enough that every Pod is made and admitted.
        let wanted = set.spec.replicas + set.spec.hot_backups + set.spec.cold_backups;
        let pods = stage
            .pods_where(&set.name_any(), |pods| {
                let known = pods.iter().filter(|pod| ROLES.contains(&role(pod))).count();
                let is_made = known >= usize::try_from(wanted).unwrap();
                if is_made { Ok(()) } else { Err(format!("{}: {known} of {wanted}", set.name_any())) }
            })
            .await;
        assert!(set.spec.replicas == 0 || !uids(&pods, "primary").is_empty());
    }
}

fn path_of(example: &str) -> PathBuf {
    Path::new(ROOT).join("examples").join(example)
}

/// What the comment at the top of an example says, with the agent's image of the lab.
pub(crate) fn apply_with_agent(stage: &Stage, name: &str, group: &str) {
    let text = std::fs::read_to_string(path_of(name)).unwrap();
    let Example { mut documents, arguments } = example(&text);
    let source = AgentSource::Copy { image: AGENT_IMAGE.into() };
    let injection = Injection { group: group.into(), source, container: None, arguments };
    for document in documents.iter_mut().filter(|document| document["kind"] == "StatefulSet") {
        let template = &mut document["spec"]["template"];
        *template = inject(template, &injection).unwrap();
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": documents});
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), list.to_string()).unwrap();
    stage.kubectl(&["apply", "-f", file.path().to_str().unwrap()]);
}
