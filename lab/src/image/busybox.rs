//! Images whose shell is this machine's own, for examples that run a few lines of it.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Error, ImageFile, ImageSpec, installed};

/// The name under which the example of replicated state asks for a shell.
const BUSYBOX_IMAGE: &str = "docker.io/library/busybox:1.37";
/// The name under which the example of a paired set asks for nginx.
const PAIRED_NGINX_IMAGE: &str = "docker.io/library/nginx:1.29";

/// What the image with the shell consists of.
///
/// # Errors
/// `RunTool` without busybox, which each machine with a cluster has.
pub fn busybox_image() -> Result<ImageSpec, Error> {
    let shell = installed("busybox")?;
    let named = ["sh", "sleep", "cat", "cut", "grep", "httpd", "timeout", "wget"].map(|name| ImageFile {
        source: shell.clone(),
        destination: format!("/bin/{name}"),
        mode: 0o755,
    });
    Ok(ImageSpec {
        name: BUSYBOX_IMAGE.to_owned(),
        entrypoint: vec!["sh".to_owned()],
        files: named.into(),
        user: None,
        env: BTreeMap::new(),
    })
}

/// What takes the place of nginx consists of: whatever it is told, `script` starts the stand-in application `app`.
///
/// # Errors
/// `RunTool` without busybox.
pub fn nginx_image((script, app): (&Path, &Path)) -> Result<ImageSpec, Error> {
    let mut image = busybox_image()?;
    for (source, destination) in [(script, "/usr/bin/nginx"), (app, "/lab-app")] {
        let (source, destination) = (source.to_owned(), destination.to_owned());
        image.files.push(ImageFile { source, destination, mode: 0o755 });
    }
    PAIRED_NGINX_IMAGE.clone_into(&mut image.name);
    Ok(image)
}
