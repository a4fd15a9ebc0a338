//! What can go wrong, and with which exit code the program then ends.

use std::error::Error as _;

use bps_core::manifests::InjectError;

/// Why a verb was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line does not fit what is there; the text says what to write instead.
    #[error("{0}")]
    Usage(String),
    /// What is there does not permit it; the text says what to do instead.
    #[error("{0}")]
    Refused(String),
    /// It did not happen in time.
    #[error("{0}")]
    Overdue(String),
    /// The kubeconfig cannot be used.
    #[error("use the kubeconfig; set KUBECONFIG, or give --kubeconfig and --context")]
    Configure(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The API server is behind a proxy.
    #[error(
        "the API server {server} would be reached through the proxy {proxy}, and this program supports no proxies: name the \
         server in NO_PROXY, or use a context without proxy-url"
    )]
    Proxy {
        /// Host of the API server.
        server: String,
        /// Host of the proxy, without what somebody needs to use it.
        proxy: String,
    },
    /// Some of it was done before the rest went wrong.
    #[error("{cause}")]
    Partly {
        /// What was done, as text for standard output.
        done: String,
        /// What went wrong.
        #[source]
        cause: Box<Self>,
    },
    /// The API server did not do what was asked.
    #[error("{what}")]
    Request {
        /// What was asked, as a verb phrase.
        what: String,
        /// What was answered.
        #[source]
        source: Box<kube::Error>,
    },
    /// The manifests cannot be read.
    #[error("read {path}")]
    ReadFile {
        /// Where they are.
        path: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("write {path}")]
    WriteFile {
        /// Where it was to be.
        path: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The manifests are no YAML or JSON.
    #[error("understand the manifests; write YAML documents or JSON")]
    Parse(#[source] Box<serde_saphyr::Error>),
    /// The system does not tell when this program is asked to end.
    #[error("wait for signals")]
    Signal(#[source] std::io::Error),
    /// What was to be told cannot be written; what was to be done is done.
    #[error("write to standard output")]
    Print(#[source] std::io::Error),
    /// An object cannot be written as text.
    #[error("write an object as text")]
    Write(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A workload cannot run the agent.
    #[error("{object}")]
    Inject {
        /// Kind and name of the workload.
        object: String,
        /// What stands in the way.
        #[source]
        source: InjectError,
    },
}

impl Error {
    /// For `map_err`: what was asked, and what the API server answered.
    pub(super) fn request(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        |source| Self::Request { what, source: Box::new(source) }
    }

    /// The same, after this was done.
    pub(super) fn after(self, done: String) -> Self {
        Self::Partly { done, cause: Box::new(self) }
    }

    /// What was done all the same, as text for standard output.
    pub fn done(&self) -> &str {
        if let Self::Partly { done, .. } = self { done } else { "" }
    }

    /// The code of the API server's refusal, if it is one.
    fn refusal_code(&self) -> Option<u16> {
        let Self::Request { source, .. } = self else { return None };
        if let kube::Error::Api(status) = &**source { Some(status.code) } else { None }
    }

    /// Whether what was asked was certainly not done.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_)) || self.refusal_code().is_some_and(|code| (400..500).contains(&code))
    }

    /// Whether the object was changed in the meantime.
    pub(super) fn is_conflict(&self) -> bool {
        self.refusal_code() == Some(409)
    }

    /// Whether an object is not there that was asked for.
    pub(super) fn is_absence(&self) -> bool {
        let Self::Request { source, .. } = self else { return false };
        matches!(&**source, kube::Error::Api(status) if status.is_not_found())
    }

    /// 1: failed, 2: wrong command line, 3: not in time.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Overdue(_) => 3,
            Self::Partly { cause, .. } => cause.exit_code(),
            Self::Refused(_)
            | Self::Configure(_)
            | Self::Proxy { .. }
            | Self::Request { .. }
            | Self::ReadFile { .. }
            | Self::WriteFile { .. }
            | Self::Parse(_)
            | Self::Signal(_)
            | Self::Print(_)
            | Self::Write(_)
            | Self::Inject { .. } => 1,
        }
    }

    /// The message with all its causes.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            // Some causes are already part of the message above them.
            let said = error.to_string();
            if !text.contains(&said) {
                text = format!("{text}: {said}");
            }
            cause = error.source();
        }
        text
    }
}
