//! Claims about bytes from strangers.

use std::time::Duration;

use kube::ResourceExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::stage::{Stage, WEB, one, uids, web};
use crate::wait::{gate, is_at_gate};

/// Longest wait for the gate to close a connection; it gives each one 2 s.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

pub(crate) async fn garbage_at_the_gate_wakes_nobody(stage: Stage) {
    stage.apply(&web([1, 0, 1])).await;
    let before = stage.settled(WEB, [1, 0, 1]).await;
    let cold = one(&before, "cold");
    let address = cold.status.as_ref().and_then(|status| status.pod_ip.clone()).unwrap();
    let address = format!("{address}:{}", bps_api::keys::GATE_PORT);
    let get = b"GET / HTTP/1.1\r\nHost: gate\r\n\r\n".to_vec();
    let samples =
        [Vec::new(), vec![0; 256], vec![0xff; 4096], get, (0..=255).collect(), vec![0xff, 0xff, 0xff, 0xff]];
    for sample in samples {
        let spoken = async {
            let mut stream = TcpStream::connect(&address).await.unwrap();
            // The gate may hang up before it has heard everything.
            let _ = stream.write_all(&sample).await;
            let _ = stream.shutdown().await;
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
        };
        tokio::time::timeout(ANSWER_WITHIN, spoken).await.expect("the gate hangs up");
    }
    let after = stage.settled(WEB, [1, 0, 1]).await;
    let same = one(&after, "cold");
    assert_eq!(same.uid(), cold.uid());
    assert!(is_at_gate(same) && gate(same).is_some_and(|gate| gate.restart_count == 0));
    // It has not lost its hearing either.
    stage.delete(one(&after, "primary")).await;
    let last = stage.settled(WEB, [1, 0, 1]).await;
    assert_eq!(uids(&last, "primary"), uids(&before, "cold"));
}
