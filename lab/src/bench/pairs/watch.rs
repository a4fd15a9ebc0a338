//! A sink in the network of a node that is told of every answer of pairs, while they are broken again and again.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::app::sink;
use crate::app::tenures::Tenures;
use crate::bench::{Error, inside};
use crate::cluster::Cluster;

/// A running sink; dropping it ends it.
pub struct Watch {
    /// Where it listens.
    pub address: SocketAddr,
    tenures: Arc<Mutex<Tenures>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Watch {
    /// Begins to receive on a free port of a node.
    ///
    /// # Errors
    /// `FindCluster` without such a node, `Find` without a socket; see [`inside::run`].
    pub async fn start(cluster: &Cluster, node: &str) -> Result<Self, Error> {
        let found = cluster.node(node).map_err(|error| Error::FindCluster(Box::new(error)))?;
        let bind = async || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0));
        let socket = inside::run(cluster, node, bind).await?;
        let missing = |_| Error::Find { what: "a socket in a node's network".to_owned() };
        let socket = socket.map_err(missing)?;
        let port = socket.local_addr().map_err(missing)?.port();
        let tenures: Arc<Mutex<Tenures>> = Arc::default();
        let is_over = Arc::new(AtomicBool::new(false));
        let (seen, ended) = (Arc::clone(&tenures), Arc::clone(&is_over));
        let receive = move || sink::receive((&socket, &seen), |_| ended.load(Ordering::Relaxed));
        let thread = Some(std::thread::spawn(receive));
        Ok(Self { address: SocketAddr::new(found.address.into(), port), tenures, is_over, thread })
    }

    /// Answers so far, and those of somebody who was not the only active.
    pub fn seen(&self) -> (u64, u64) {
        let tenures = self.tenures();
        (tenures.outputs(), tenures.stale())
    }

    /// What came in which epoch.
    pub fn describe(&self) -> String {
        self.tenures().to_string()
    }

    fn tenures(&self) -> MutexGuard<'_, Tenures> {
        // Every change is complete before anything can panic.
        self.tenures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It looks ten times a second whether it is over; what it received is kept by others.
            let _ = thread.join();
        }
    }
}
