//! Reads the shipped manifests and adapts them to the images at hand.
//!
//! Talks to nobody; what is applied is what the repository ships, but for image names and one annotation.

use serde_json::{Value, json};

use crate::image::{AGENT_IMAGE, OPERATOR_IMAGE, WAKEUP_IMAGE};

/// What the repository ships for `kubectl apply`.
pub const SHIPPED: &str = include_str!("../../../deploy/install.yaml");
/// Kind of the object that has to be served before others make sense.
pub const DEFINITION: &str = "CustomResourceDefinition";
/// Annotation on the operator's Pods: digest of the images, so that other bytes under the same name are rolled out.
const ANNOTATION_IMAGES: &str = "lab.backup.example.com/images";
/// Flag of the operator that names the image of the gate.
const WAKEUP_FLAG: &str = "--wakeup-image=";
/// Flag of the operator that names the image of the agent.
const AGENT_FLAG: &str = "--agent-image=";

/// Why a manifest cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("parse YAML")]
pub struct Error(#[source] Box<serde_saphyr::Error>);

/// Where the operator's images come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Images {
    /// Image of the operator.
    pub operator: String,
    /// Image with the wake-up program.
    pub wakeup: String,
    /// Image with the agent.
    pub agent: String,
    /// Tells these images from others of the same names; a change restarts the operator.
    pub digest: String,
}

impl Images {
    /// The images that the lab loads.
    pub fn of_lab(digest: &str) -> Self {
        Self {
            operator: OPERATOR_IMAGE.to_owned(),
            wakeup: WAKEUP_IMAGE.to_owned(),
            agent: AGENT_IMAGE.to_owned(),
            digest: digest.to_owned(),
        }
    }
}

/// The objects of a YAML text with several documents.
///
/// # Errors
/// [`Error`] if it is not YAML.
pub fn parse(text: &str) -> Result<Vec<Value>, Error> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| Error(Box::new(error)))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// The same objects with other images in the operator's Deployment.
pub fn with_images(mut objects: Vec<Value>, images: &Images) -> Vec<Value> {
    for object in objects.iter_mut().filter(|object| object["kind"] == "Deployment") {
        let template = &mut object["spec"]["template"];
        template["metadata"]["annotations"][ANNOTATION_IMAGES] = json!(images.digest);
        let containers = template["spec"]["containers"].as_array_mut();
        for container in containers.into_iter().flatten() {
            container["image"] = json!(images.operator);
            // Archives are loaded under this name, and there is no registry to ask.
            container["imagePullPolicy"] = json!("IfNotPresent");
            for argument in container["args"].as_array_mut().into_iter().flatten() {
                for (flag, image) in [(WAKEUP_FLAG, &images.wakeup), (AGENT_FLAG, &images.agent)] {
                    if argument.as_str().is_some_and(|text| text.starts_with(flag)) {
                        *argument = json!(format!("{flag}{image}"));
                    }
                }
            }
        }
    }
    objects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_deployment_changes_and_only_in_its_images() {
        let shipped = parse(SHIPPED).unwrap();
        let adapted = with_images(shipped.clone(), &Images::of_lab("0123"));
        let changed: Vec<_> =
            shipped.iter().zip(&adapted).filter(|(one, other)| one != other).map(|(one, _)| one).collect();
        assert_eq!(changed.len(), 1);
        assert_eq!(changed[0]["kind"], "Deployment");
        let deployment = adapted.iter().find(|object| object["kind"] == "Deployment").unwrap();
        let template = &deployment["spec"]["template"];
        let container = &template["spec"]["containers"][0];
        assert_eq!(container["image"], OPERATOR_IMAGE);
        for argument in [format!("{WAKEUP_FLAG}{WAKEUP_IMAGE}"), format!("{AGENT_FLAG}{AGENT_IMAGE}")] {
            assert!(container["args"].as_array().unwrap().contains(&json!(argument)));
        }
        assert_eq!(template["metadata"]["annotations"][ANNOTATION_IMAGES], "0123");
    }

    #[test]
    fn the_shipped_manifest_defines_the_kind_before_anything_else() {
        assert_eq!(parse(SHIPPED).unwrap()[0]["kind"], DEFINITION);
    }
}
