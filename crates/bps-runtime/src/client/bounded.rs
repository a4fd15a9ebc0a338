//! A layer around every request: gives it a deadline and counts how it was answered.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, Uri};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use kube::client::Body;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};
use tower::{BoxError, Layer, Service};

use super::{READ_TIMEOUT, WRITE_TIMEOUT};
use crate::metrics::rest::{Code, Host, RestMetrics};

/// A request was not answered in time.
#[derive(Debug, thiserror::Error)]
#[error("no answer from the API server within {} s", limit.as_secs())]
pub struct NoAnswer {
    /// The time that had been given.
    pub limit: Duration,
}

/// Wraps a service in [`Bounded`].
#[derive(Clone, Debug)]
pub(super) struct BoundedLayer {
    host: Host,
    metrics: RestMetrics,
}

/// A service whose requests end in time and are counted.
#[derive(Debug)]
pub(super) struct Bounded<Inner> {
    inner: Inner,
    layer: BoundedLayer,
}

/// The body of an answer, which ends with an error when its time is over.
pub(super) struct BoundedBody<Inner> {
    inner: Inner,
    /// `None` for streams, which end when their reader wants.
    deadline: Option<(Pin<Box<Sleep>>, Duration)>,
}

impl BoundedLayer {
    pub(super) fn new(host: Host, metrics: RestMetrics) -> Self {
        Self { host, metrics }
    }
}

impl<Inner> Layer<Inner> for BoundedLayer {
    type Service = Bounded<Inner>;

    fn layer(&self, inner: Inner) -> Bounded<Inner> {
        Bounded { inner, layer: self.clone() }
    }
}

impl<Inner, Answer> Service<Request<Body>> for Bounded<Inner>
where
    Inner: Service<Request<Body>, Response = Response<Answer>>,
    Inner::Error: Into<BoxError> + Send,
    Inner::Future: Send + 'static,
    Answer: Send + 'static,
{
    type Response = Response<BoundedBody<Answer>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = request.method().clone();
        let limit = if method == Method::GET { READ_TIMEOUT } else { WRITE_TIMEOUT };
        let is_stream = is_stream(request.uri());
        let layer = self.layer.clone();
        let (sent, answer) = (Instant::now(), self.inner.call(request));
        Box::pin(async move {
            let answer = match timeout_at(sent + limit, answer).await {
                Ok(answer) => answer.map_err(Into::into),
                Err(_) => Err(NoAnswer { limit }.into()),
            };
            let code = answer.as_ref().map_or(Code::NoAnswer, |answer| Code::Status(answer.status()));
            layer.metrics.answered(&layer.host, &method, (code, sent.elapsed()));
            let deadline = (!is_stream).then(|| (Box::pin(sleep_until(sent + limit)), limit));
            answer.map(|answer| answer.map(|inner| BoundedBody { inner, deadline }))
        })
    }
}

/// Whether the answer is meant to go on: a watch or a log that is followed.
fn is_stream(uri: &Uri) -> bool {
    let mut pairs = uri.query().unwrap_or_default().split('&');
    pairs.any(|pair| matches!(pair, "watch=true" | "watch=1" | "follow=true"))
}

impl<Inner> HttpBody for BoundedBody<Inner>
where
    Inner: HttpBody<Data = Bytes> + Unpin,
    Inner::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // Data first: what has arrived is used even if the time is just over.
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let Some((deadline, limit)) = &mut self.deadline else { return Poll::Pending };
        let limit = *limit;
        deadline.as_mut().poll(context).map(|()| Some(Err(NoAnswer { limit }.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
