//! Claims about what the operator remembers of a takeover.

use std::time::Duration;

use bps_api::Takeover;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::api::DeleteParams;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::load::Load;
use crate::notes::note;
use crate::pairs::{paired, pod, served_again, shown, start_stateful_set, taken_over, takeover};
use crate::stage::{Stage, WEB};
use crate::wait;

/// How long a scrape may take.
const SCRAPE_MAX: Duration = Duration::from_secs(5);

/// The takeover by this Pod, once every phase of it is known.
async fn told(stage: &Stage, to: &str) -> Takeover {
    let is_whole = |takeover: &Takeover| takeover.phases.each().iter().all(|(_, time)| time.is_some());
    let takeover = takeover(stage.api(), to, is_whole).await;
    let phases = takeover.phases.each();
    note(format!("{}: {phases:?}", takeover.reason));
    assert!(phases.map(|(_, time)| time).is_sorted(), "{phases:?}");
    takeover
}

async fn has_event(stage: &Stage, reason: &'static str, note: &str) {
    wait::until(stage.api(), "", |events: &[Event]| {
        let is_it = |event: &&Event| {
            event.reason.as_deref() == Some(reason)
                && event.note.as_deref().is_some_and(|text| text.contains(note))
        };
        events.iter().find(is_it).map(drop).ok_or(format!("no event {reason} with {note:?}"))
    })
    .await;
}

pub(crate) async fn a_takeover_is_remembered_with_its_reason_and_every_phase_in_order(stage: Stage) {
    start_stateful_set(&stage, 2).await;
    let before = paired(&stage, 1).await.remove(0);
    shown(&stage, &before).await;
    let load = Load::start(&stage, "n1").await;
    let active = pod(&stage, &before.active).await;
    stage.bench.cluster.kill_below_init(&stage.target(&active)).unwrap();
    let after = taken_over(&stage, &before).await;
    let takeover = told(&stage, &after.active).await;
    assert_eq!(takeover.reason, "ApplicationEnded");
    has_event(&stage, "Takeover", "ApplicationEnded").await;
    has_event(&stage, "TakeoverComplete", "ApplicationEnded").await;

    let after = paired(&stage, 1).await.remove(0);
    shown(&stage, &after).await;
    stage.api::<Pod>().delete(&after.active, &DeleteParams::default()).await.unwrap();
    let last = taken_over(&stage, &after).await;
    assert_eq!(told(&stage, &last.active).await.reason, "PodDeleted");
    has_event(&stage, "Takeover", "PodDeleted").await;
    served_again("both takeovers", load).await;
}

pub(crate) async fn the_metrics_of_an_agent_are_for_the_token_of_its_group_alone(stage: Stage) {
    start_stateful_set(&stage, 2).await;
    let pair = paired(&stage, 1).await.remove(0);
    let secret = stage.api::<Secret>().get(&format!("{WEB}-ha-keys")).await.unwrap();
    let token = String::from_utf8(secret.data.unwrap()["metrics-token"].0.clone()).unwrap();
    let address = pod(&stage, &pair.active).await.status.unwrap().pod_ip.unwrap();
    let refused = scrape(&address, "Bearer wrong").await;
    assert!(refused.starts_with("HTTP/1.1 401") && refused.contains("www-authenticate: Bearer"), "{refused}");
    let told = scrape(&address, &format!("Bearer {token}")).await;
    assert!(told.starts_with("HTTP/1.1 200"), "{told}");
    for line in
        ["backuppodset_agent_role{role=\"active\"} 1", "backuppodset_agent_application_starts_total 1"]
    {
        assert!(told.lines().any(|found| found == line), "{line} is not in\n{told}");
    }
}

async fn scrape(address: &str, authorization: &str) -> String {
    let ask = async {
        let mut stream = tokio::net::TcpStream::connect((address, 20_002)).await?;
        let request =
            format!("GET /metrics HTTP/1.1\r\nHost: agent\r\nAuthorization: {authorization}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    tokio::time::timeout(SCRAPE_MAX, ask).await.expect("an answer in time").expect("an answer")
}
