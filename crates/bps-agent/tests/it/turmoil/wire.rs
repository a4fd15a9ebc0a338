//! The agents' way to the API server: the real client of kube, with a TCP connection of turmoil for each request.

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use tower::{BoxError, service_fn};
use turmoil::net::TcpStream;

use crate::turmoil::server::{API, PORT};

/// A client; to be made on the host that uses it.
pub(crate) fn client() -> Client {
    Client::new(service_fn(send), "default")
}

async fn send(request: Request<Body>) -> Result<Response<Incoming>, BoxError> {
    let stream = TcpStream::connect((API, PORT)).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the answer, or when the request is given up.
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?)
}
