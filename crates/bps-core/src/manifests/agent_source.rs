//! The ways in which the agent's program comes into a Pod, and what each of them adds to it.
//!
//! The agent's marks are in an emptyDir in each case, which is not its business.

use bps_api::keys;
use serde_json::{Value, json};

use super::gate::restricted_container;

/// Where the agent in a Pod comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentSource {
    /// An init container copies it out of this image. Works everywhere, and costs the start of one more container.
    Copy {
        /// Image with the agent at [`keys::AGENT_IMAGE_PROGRAM_PATH`].
        image: String,
    },
    /// This image is mounted as an image volume, read-only.
    ///
    /// Needs Kubernetes 1.35 and a runtime that has image volumes and lets programs in them run. `restricted` Pod
    /// security admits them; source: `policy/check_restrictedVolumes.go` of k8s.io/pod-security-admission, the same in
    /// 0.35.0 and 0.36.4. The kubelet pulls the image before it starts the first init container, so a cold backup has
    /// it when it is woken; source: `SyncPod` in `kuberuntime_manager.go` of Kubernetes 1.36.4.
    ImageVolume {
        /// Image with the agent at [`keys::AGENT_IMAGE_PROGRAM_PATH`].
        image: String,
    },
    /// The image of the application has it: nothing is copied or mounted.
    Image {
        /// Absolute path of the program in that image.
        path: String,
    },
}

impl AgentSource {
    /// Path of the program in the container of the application.
    pub(super) fn program(&self) -> &str {
        match self {
            Self::Copy { .. } => keys::AGENT_PROGRAM_PATH,
            Self::ImageVolume { .. } => keys::AGENT_VOLUME_PROGRAM_PATH,
            Self::Image { path } => path,
        }
    }

    /// What copies the program, with pull policy and resources as the application's container has them.
    pub(super) fn init_container(&self, application: &Value) -> Option<Value> {
        let Self::Copy { image } = self else { return None };
        let mut like = json!({"image": image, "resources": application["resources"]});
        if let Some(policy) = application.get("imagePullPolicy") {
            like["imagePullPolicy"] = policy.clone();
        }
        let command = [keys::AGENT_IMAGE_PROGRAM_PATH, "install", keys::AGENT_MOUNT_PATH];
        let mount = json!({"name": keys::VOLUME_AGENT, "mountPath": keys::AGENT_MOUNT_PATH});
        Some(restricted_container((keys::CONTAINER_INSTALL_AGENT, &like), &command, &[mount]))
    }

    /// The volume that holds the program, with the pull policy of the application's container.
    pub(super) fn volume(&self, application: &Value) -> Option<Value> {
        let Self::ImageVolume { image } = self else { return None };
        let mut source = json!({"reference": image});
        if let Some(policy) = application.get("imagePullPolicy") {
            source["pullPolicy"] = policy.clone();
        }
        Some(json!({"name": keys::VOLUME_AGENT_PROGRAM, "image": source}))
    }

    /// Where [`AgentSource::volume`] is mounted.
    pub(super) fn mount(&self) -> Option<Value> {
        let Self::ImageVolume { .. } = self else { return None };
        let (name, path) = (keys::VOLUME_AGENT_PROGRAM, keys::AGENT_VOLUME_MOUNT_PATH);
        Some(json!({"name": name, "mountPath": path, "readOnly": true}))
    }
}
