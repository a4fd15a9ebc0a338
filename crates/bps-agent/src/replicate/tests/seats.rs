//! What an agent with one seat and one with several do with a directory that their Lease still calls in sync.

use std::path::Path;

use bps_protocol::AgentId;
use bps_runtime::shutdown::Shutdown;
use bps_runtime::tasks::Tasks;
use bps_wire::key_ring::KeyRing;
use tokio::sync::{mpsc, watch};

use super::StateDirectory;
use crate::doorman::Doorman;
use crate::metrics::AgentMetrics;
use crate::replicate::channel::GREETING;
use crate::replicate::gate::PromoteWhen;
use crate::replicate::left_out::LeftOut;
use crate::replicate::{Replica, ReplicateSettings, Replication};

fn started(replication: &Replication, tasks: &mut Tasks) -> Replica {
    let keys = watch::channel(KeyRing::parse(&"0f".repeat(32)).unwrap()).1;
    let wires = (keys, mpsc::channel(1).0, AgentMetrics::default());
    replication.start((tasks, &Shutdown::new()), (50, AgentId(1)), wires).unwrap()
}

fn settings(folder: &Path) -> ReplicateSettings {
    ReplicateSettings {
        directory: folder.to_owned(),
        promote_when: PromoteWhen::InSync,
        left_out: LeftOut::default(),
    }
}

#[tokio::test]
async fn a_seat_is_kept_by_the_number_that_its_directory_has_and_the_place_of_one_seat_is_not() {
    let (folder, mut tasks) = (tempfile::tempdir().unwrap(), Tasks::new());
    let settings = settings(folder.path());
    let directory = StateDirectory::open(folder.path()).unwrap();
    let seat = Replication::of_seat(&settings, directory.clone(), Doorman::new(GREETING));
    let replica = started(&seat, &mut tasks);
    assert_eq!(replica.kept(), Some(directory.id()));
    let renewed = directory.renew().unwrap();
    assert_eq!(replica.kept(), Some(renewed));

    let one = Replication::open(&settings, "127.0.0.1:0".parse().unwrap()).unwrap();
    assert_eq!(started(&one, &mut tasks).kept(), None);
}
