//! Writes Pods.

use bps_api::{BackupPodSet, keys};
use bps_core::manifests::{
    GateSettings, Injection, PodRequest, label_patch, owner_reference, pod, role_patch,
};
use bps_core::model::{PodName, PodRef, Refusal, Role, SubsetName};
use bps_observe::slim::SlimPod;
use bps_observe::{Observation, SetKey, TakenBack, Written, is_controlled_by};
use bps_runtime::error::chain;
use bps_wakeup::protocol::SignedTicket;
use http::Uri;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{ObjectMeta, Request};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::{Value, json};

use super::Answer;
use super::outcome::refused;
use super::removal::{at_version, delete};
use super::standing::objection;
use super::taken::taken;

/// Most attempts to delete a Pod that was made in vain. 3: one conflicts with the scheduler's write, and one may fail.
const TAKE_BACK_ATTEMPTS_MAX: u32 = 3;

/// The address of a write that the API server refuses if the object has a field that it does not know.
///
/// The template keeps fields that its schema does not know, so a misspelled one, or one of a newer Kubernetes, is found here.
fn strict(address: &Uri) -> Result<Uri, http::Error> {
    let joint = if address.query().is_some() { '&' } else { '?' };
    Ok(format!("{address}{joint}fieldValidation=Strict").parse::<Uri>()?)
}

/// Pods of one set's namespace.
pub(super) struct Pods<'a> {
    client: &'a Client,
    set: &'a BackupPodSet,
    injection: Option<&'a Injection>,
    api: Api<SlimPod>,
}

/// A Pod that a plan makes.
#[derive(Clone, Copy)]
pub(super) struct NewPod<'a> {
    pub(super) name: &'a PodName,
    pub(super) role: Role,
    pub(super) slot: u32,
    pub(super) subset: Option<&'a SubsetName>,
}

impl<'a> Pods<'a> {
    pub(super) fn new(client: &'a Client, observation: &'a Observation) -> Self {
        let set = observation.set.as_ref();
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        Self {
            client,
            set,
            injection: observation.injection.as_ref(),
            api: Api::namespaced(client.clone(), namespace),
        }
    }

    pub(super) async fn create(
        &self,
        gate: &GateSettings,
        NewPod { name, role, slot, subset }: NewPod<'_>,
        now: Timestamp,
    ) -> Answer {
        let request = PodRequest { set: self.set, name, role, slot, subset, now, injection: self.injection };
        let body = match pod(&request, gate) {
            Ok(body) => body,
            Err(error) => return Answer::failed(Refusal::Invalid, error.to_string()),
        };
        match self.post(&body).await {
            Ok(created) => match changed_label(&body, &created.metadata) {
                None => Answer::done(Written::Pod(Box::new(created))),
                Some(label) => self.take_back(created, label).await,
            },
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let is_ours = |found: &ObjectMeta| is_seen_in(self.set, found);
                taken(&self.api, &name.0, (is_ours, |pod| Written::Pod(Box::new(pod)))).await
            }
            Err(error) => refused(&error),
        }
    }

    /// Deletes a Pod that came back from its creation without the labels that plans find it by: the next one would make another.
    async fn take_back(&self, created: SlimPod, label: &str) -> Answer {
        let name = created.name_any();
        let fate = match self.delete_again(created).await {
            Ok(()) => "the Pod was deleted again".to_owned(),
            Err(error) => format!("the Pod could not be deleted again: {}", chain(&error)),
        };
        let words = format!(
            "admission changed the label {label} of Pod {name}, and {fate}; exempt that label from the policy"
        );
        // Each is made after a longer pause: its own end would bring the next look at once.
        let set = SetKey { namespace: self.set.namespace().unwrap_or_default(), name: self.set.name_any() };
        let taken_back = Written::TakenBack(TakenBack { set, words: words.clone() });
        Answer { written: Some(taken_back), ..Answer::failed(Refusal::Forbidden, words) }
    }

    async fn delete_again(&self, created: SlimPod) -> Result<(), kube::Error> {
        let (name, uid) = (created.name_any(), created.uid());
        let (mut version, mut attempts) = (created.resource_version(), 0);
        loop {
            attempts += 1;
            match self.api.delete(&name, &at_version(uid.clone(), version.clone())).await {
                Ok(_) => return Ok(()),
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
                Err(error) if attempts == TAKE_BACK_ATTEMPTS_MAX => return Err(error),
                Err(_) => {}
            }
            match self.api.get_opt(&name).await {
                Ok(Some(found)) if found.uid() == uid => version = found.resource_version(),
                Ok(_) => return Ok(()),
                // As with a deletion that fails, the next attempt is the remedy.
                Err(_) => {}
            }
        }
    }

    async fn post(&self, body: &Value) -> Result<SlimPod, kube::Error> {
        let url = SlimPod::url_path(&(), self.set.metadata.namespace.as_deref());
        let parameters =
            PostParams { field_manager: Some(keys::FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let bytes = serde_json::to_vec(body).map_err(kube::Error::SerdeError)?;
        let mut request = Request::new(url).create(&parameters, bytes).map_err(kube::Error::BuildRequest)?;
        *request.uri_mut() = strict(request.uri()).map_err(kube::Error::HttpError)?;
        self.client.request(request).await
    }

    /// Changes the role; `ticket` is what opens the Pod's gate, if it waits at one.
    pub(super) async fn convert(
        &self,
        pod: &PodRef,
        to: Role,
        ticket: Option<&SignedTicket>,
        now: Timestamp,
    ) -> Answer {
        let ticket = ticket.map(SignedTicket::to_text);
        self.patch(pod, &role_patch(pod, to, ticket.as_deref(), now)).await
    }

    /// Writes a ticket into the Pod's annotations.
    pub(super) async fn post_ticket(&self, pod: &PodRef, ticket: &SignedTicket) -> Answer {
        let patch = json!({"metadata": {
            "uid": pod.uid.0,
            "resourceVersion": pod.resource_version,
            "annotations": {(keys::ANNOTATION_TICKET): ticket.to_text()},
        }});
        self.patch(pod, &patch).await
    }

    pub(super) async fn relabel(&self, pod: &PodRef, role: Role) -> Answer {
        let patch = label_patch(pod, role);
        let answer = self.patch(pod, &patch).await;
        let Some(Written::Pod(written)) = &answer.written else { return answer };
        if written.labels().get(keys::LABEL_TYPE).is_some_and(|word| word == role.type_label()) {
            return answer;
        }
        let message = format!("admission changed the label {} of Pod {}", keys::LABEL_TYPE, pod.name);
        Answer { written: answer.written, ..Answer::failed(Refusal::Forbidden, message) }
    }

    pub(super) async fn adopt(&self, pod: &PodRef) -> Answer {
        if let Some(answer) = objection(self.client, self.set).await {
            return answer;
        }
        let patch = json!({"metadata": {
            "uid": pod.uid.0,
            "resourceVersion": pod.resource_version,
            "ownerReferences": [owner_reference(self.set)],
        }});
        self.patch(pod, &patch).await
    }

    async fn patch(&self, pod: &PodRef, patch: &Value) -> Answer {
        let parameters =
            PatchParams { field_manager: Some(keys::FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        match self.api.patch(&pod.name.0, &parameters, &Patch::Merge(patch)).await {
            Ok(patched) => Answer::done(Written::Pod(Box::new(patched))),
            Err(error) => refused(&error),
        }
    }

    pub(super) async fn delete(&self, pod: &PodRef) -> Answer {
        let seen = ObjectMeta {
            namespace: self.set.metadata.namespace.clone(),
            name: Some(pod.name.0.clone()),
            uid: Some(pod.uid.0.clone()),
            resource_version: Some(pod.resource_version.clone()),
            ..ObjectMeta::default()
        };
        let kept = |pod: SlimPod| Written::Pod(Box::new(pod));
        let gone = |pod: SlimPod| Written::PodGone(Box::new(pod));
        delete(&self.api, seen, (kept, gone)).await
    }
}

/// The first label that a Pod was sent with and does not bear, of those without which no plan takes it for what it is.
fn changed_label(sent: &Value, created: &ObjectMeta) -> Option<&'static str> {
    let sent = |key: &str| sent["metadata"]["labels"][key].as_str();
    let borne = |key: &str| created.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
    [keys::LABEL_SET, keys::LABEL_ROLE, keys::LABEL_REVISION, keys::LABEL_SUBSET]
        .into_iter()
        .find(|key| sent(key) != borne(key))
}

/// Whether plans see the Pod: with its labels as well, for what a human took out of the set by them never fills a place.
fn is_seen_in(set: &BackupPodSet, pod: &ObjectMeta) -> bool {
    let label = |key: &str| pod.labels.as_ref().and_then(|labels| labels.get(key));
    let has_role = label(keys::LABEL_ROLE).is_some_and(|role| Role::parse(role).is_some());
    is_controlled_by(pod, set) && label(keys::LABEL_SET) == set.metadata.name.as_ref() && has_role
}
