//! The times of a group that people may choose.

#![allow(unreachable_pub, reason = "the KubeSchema derive puts a pub struct into a function")]
#![allow(clippy::struct_field_names, reason = "a number that people write says its unit in its name")]

use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How long things take in the pairs of a group. Every agent and the operator use the same; pairs keep those that they
/// began with.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "self.holdMilliseconds * 1001 + 50000 <= self.watchMilliseconds * 1000").message(
    "timing.watchMilliseconds must be at least holdMilliseconds * 1.001 + 50: write a longer watch or a shorter hold"))]
#[x_kube(validation = Rule::new("self.stopMilliseconds + 1000 < self.holdMilliseconds").message(
    "timing.holdMilliseconds must be more than stopMilliseconds + 1000: write a longer hold or a shorter stop"))]
pub struct GroupTiming {
    /// `Default`: the times below. `Fast`: a hold of 450 ms, a watch of 501 ms and 50 ms for the end of an application, instead of
    /// holdMilliseconds, watchMilliseconds and stopMilliseconds: the loss of a node costs half a second. It needs nodes that give
    /// the agent processor time within 0.1 s, and sends four times as many datagrams. An active whose node does not writes the
    /// Lease twice a second instead, and the loss of that node costs 2 s; the group is Degraded (`LateNode`) meanwhile.
    #[serde(default)]
    pub profile: TimingProfile,

    /// How long an active may act after the last sign of its peer or the API server, 1101 to 30000, default 1900. Its
    /// application has certainly ended by then.
    #[serde(default = "hold_milliseconds")]
    #[schemars(range(min = 1_101, max = 30_000))]
    pub hold_milliseconds: i32,

    /// How long a standby waits for a sign of its active before it takes over, 1153 to 30100, default 2000: the time that
    /// the loss of a node costs. At least holdMilliseconds * 1.001 + 50.
    #[serde(default = "watch_milliseconds")]
    #[schemars(range(min = 1_153, max = 30_100))]
    pub watch_milliseconds: i32,

    /// How long ending the application may take when its hold runs out, 50 to 20000, default 200. It gets SIGTERM, after
    /// half of it SIGKILL. One that somebody wants to end (a deleted Pod, a drain, a rollout, a switchover, a fence) has
    /// longer: the Pod's grace period less its preStop sleep, twice the hold and 3 s, and acts on meanwhile; with the handover
    /// `MakeBeforeBreak` it acts on until the other one serves, and has 5 s then.
    #[serde(default = "stop_milliseconds")]
    #[schemars(range(min = 50, max = 20_000))]
    pub stop_milliseconds: i32,

    /// For how long an active acts on while the API server is away and its standby answers, 0 to 3600, default 3600. The
    /// operator waits a minute and a sixtieth longer than this for a pair whose members are both gone, unless their kubelets
    /// have said that they ended, or have worked for long enough since their Pods were gone, or their nodes are not ready and
    /// have the taint node.kubernetes.io/out-of-service.
    #[serde(default = "api_outage_seconds")]
    #[schemars(range(min = 0, max = 3_600))]
    pub api_outage_seconds: i32,
}

/// How fast the Pods of a pair notice that the other one is lost.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimingProfile {
    /// As fast as the times say that are written beside it.
    #[default]
    Default,
    /// Within half a second.
    Fast,
}

impl Default for GroupTiming {
    fn default() -> Self {
        Self {
            profile: TimingProfile::default(),
            hold_milliseconds: hold_milliseconds(),
            watch_milliseconds: watch_milliseconds(),
            stop_milliseconds: stop_milliseconds(),
            api_outage_seconds: api_outage_seconds(),
        }
    }
}

fn hold_milliseconds() -> i32 {
    1_900
}

fn watch_milliseconds() -> i32 {
    2_000
}

fn stop_milliseconds() -> i32 {
    200
}

fn api_outage_seconds() -> i32 {
    3_600
}
