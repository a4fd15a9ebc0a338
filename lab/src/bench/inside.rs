//! Work in the network of a node, where the addresses of Pods and Services lead somewhere.

use std::fs::File;
use std::os::fd::AsFd;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::Error;
use crate::cluster::Cluster;
use crate::machine;

/// Runs asynchronous work on a thread of its own in a node's network; what it starts there stays there.
///
/// # Errors
/// `FindCluster` without such a node, `Machine` if the namespace cannot be entered.
pub async fn run<T, F>(
    cluster: &Cluster,
    node: &str,
    work: impl FnOnce() -> F + Send + 'static,
) -> Result<T, Error>
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    let node = cluster.node(node).map_err(|error| Error::FindCluster(Box::new(error)))?;
    let pin = cluster.run_directory().node(&node.name).network_pin();
    let enter = move || {
        let failed = |error: std::io::Error| Error::Machine {
            action: "enter the network of a node",
            source: Box::new(machine::Error::file("enter", &pin, error)),
        };
        let namespace = File::open(&pin).map_err(failed)?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|errno| failed(errno.into()))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        Ok(runtime.block_on(work()))
    };
    // Not one of tokio's own threads: those are used again, and this one has left its network for good.
    let (sender, receiver) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        // Nobody waits any more if the caller has given up.
        let _ = sender.send(enter());
    });
    receiver.await.map_err(|_| Error::Find { what: "the end of work in a node's network".to_owned() })?
}
