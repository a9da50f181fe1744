//! The model's description of one operation.
//!
//! Why: the structure of the generated table.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Delete,
    Get,
    Head,
    Post,
    Put,
}

impl Method {
    pub(crate) fn of(method: &http::Method) -> Option<Method> {
        Some(match *method {
            http::Method::DELETE => Method::Delete,
            http::Method::GET => Method::Get,
            http::Method::HEAD => Method::Head,
            http::Method::POST => Method::Post,
            http::Method::PUT => Method::Put,
            _ => return None,
        })
    }
}

/// The resource type of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Service,
    Bucket,
    Object,
}

/// Names of headers are in lower case.
#[derive(Debug)]
pub(crate) struct Operation {
    pub name: &'static str,
    pub method: Method,
    pub scope: Scope,
    /// Query parameters that are always present; an empty value stands for any.
    pub fixed_query: &'static [(&'static str, &'static str)],
    /// Query parameters that distinguish it from other operations.
    pub required_query: &'static [&'static str],
    /// Headers that distinguish it from other operations.
    pub required_headers: &'static [&'static str],
    pub query: &'static [&'static str],
    pub headers: &'static [&'static str],
    /// Prefixes of header names that carry maps (`x-amz-meta-`).
    pub prefixes: &'static [&'static str],
}

impl Operation {
    /// Number of conditions that a request must meet. A request is the most specific operation that it matches.
    pub(crate) fn conditions(&self) -> usize {
        self.fixed_query.len() + self.required_query.len() + self.required_headers.len()
    }
}
