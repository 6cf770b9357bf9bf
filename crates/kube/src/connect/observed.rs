//! A client that reports each of its requests: what was requested, how it was answered, and after what time.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use http::{Method, Request, Response, Uri};
use tower::{Layer, Service};

/// A request that was answered, or failed. Of a watch and of a list the answer has only begun.
pub(crate) struct Answered<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) query: &'a str,
    /// Nothing where no answer came.
    pub(crate) code: Option<u16>,
    pub(crate) took: Duration,
}

/// Called with each request.
pub(crate) type Observer = Arc<dyn Fn(&Answered<'_>) + Send + Sync>;

#[derive(Clone)]
pub(super) struct Observed(pub(super) Observer);

impl<S> Layer<S> for Observed {
    type Service = ObservedService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ObservedService { inner, observer: Arc::clone(&self.0) }
    }
}

#[derive(Clone)]
pub(super) struct ObservedService<S> {
    inner: S,
    observer: Observer,
}

impl<S, A, B> Service<Request<A>> for ObservedService<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let asked = Asked {
            method: request.method().clone(),
            uri: request.uri().clone(),
            began: Instant::now(),
            code: None,
            observer: Arc::clone(&self.observer),
        };
        let answer = self.inner.call(request);
        Box::pin(async move {
            // Moves the whole request into the block: a write of one field alone would copy that field.
            let mut asked = asked;
            let answer = answer.await;
            asked.code = answer.as_ref().ok().map(|answer| answer.status().as_u16());
            answer
        })
    }
}

/// A request until it is answered, or given up: if its future is dropped, it had no answer.
struct Asked {
    method: Method,
    uri: Uri,
    began: Instant,
    code: Option<u16>,
    observer: Observer,
}

impl Drop for Asked {
    fn drop(&mut self) {
        (self.observer)(&Answered {
            method: self.method.as_str(),
            path: self.uri.path(),
            query: self.uri.query().unwrap_or_default(),
            code: self.code,
            took: self.began.elapsed(),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tower::ServiceExt;

    use super::*;

    #[test]
    fn what_is_answered_and_what_is_given_up_is_told_once() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&seen);
        let observer: Observer = Arc::new(move |answered: &Answered<'_>| {
            told.lock().unwrap().push((answered.path.to_owned(), answered.query.to_owned(), answered.code));
        });
        let server = tower::service_fn(|request: Request<()>| async move {
            if request.uri().path() == "/never" {
                std::future::pending::<()>().await;
            }
            Ok::<_, std::convert::Infallible>(Response::builder().status(201).body(()).unwrap())
        });
        let client = Observed(observer).layer(server);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for path in ["/soon?watch=true", "/never"] {
                let request = Request::get(path).body(()).unwrap();
                let answer = client.clone().oneshot(request);
                let _ = tokio::time::timeout(Duration::from_millis(20), answer).await;
            }
        });
        let of = |path: &str, query: &str, code| (path.to_owned(), query.to_owned(), code);
        assert_eq!(*seen.lock().unwrap(), [of("/soon", "watch=true", Some(201)), of("/never", "", None)]);
    }
}
