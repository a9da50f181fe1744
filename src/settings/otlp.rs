//! Where spans go: the settings of OpenTelemetry.
//!
//! Not here:   spans (`spans`).

use std::path::PathBuf;

use margay_client::endpoint::Endpoint;

/// What the collector's URL is followed by, unless it ends so.
const TRACES_PATH: &str = "/v1/traces";

/// Where spans go.
#[derive(Clone, Debug)]
pub struct OtlpSettings {
    pub endpoint: Endpoint,
    /// Authorities of a collector with https; the system's if none.
    pub ca: Option<PathBuf>,
    /// Of requests that say nothing of their trace, between 0 and 1.
    pub ratio: f64,
    /// `service.name`.
    pub service: String,
}

impl OtlpSettings {
    /// None without a URL. The error is one line.
    pub(crate) fn build(text: &impl Fn(&str) -> Option<String>) -> Result<Option<OtlpSettings>, String> {
        let Some(url) = text("otlp_endpoint") else { return Ok(None) };
        let base = url.trim_end_matches('/');
        let full = if base.ends_with(TRACES_PATH) { base.to_owned() } else { format!("{base}{TRACES_PATH}") };
        // The URL may have a password, so the error does not repeat it.
        let endpoint = Endpoint::parse(&full).map_err(|error| format!("otlp_endpoint: {error}"))?;
        let ratio = text("otlp_sample_ratio").and_then(|ratio| ratio.parse().ok()).unwrap_or(1.0);
        let service = text("otlp_service").unwrap_or_else(|| "margay".to_owned());
        Ok(Some(OtlpSettings { endpoint, ca: text("otlp_ca").map(PathBuf::from), ratio, service }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_gets_its_path_once() {
        let build = |url: Option<&str>| {
            OtlpSettings::build(&|name: &str| url.filter(|_| name == "otlp_endpoint").map(str::to_owned))
        };
        for url in ["http://c:4318", "http://c:4318/", "http://c:4318/v1/traces"] {
            let settings = build(Some(url)).unwrap().unwrap();
            assert_eq!(format!("{:?}", settings.endpoint), "c:4318/v1/traces");
        }
        assert!(build(None).unwrap().is_none());
        let error = build(Some("me:secret@c:4318")).unwrap_err();
        assert!(error.contains("otlp_endpoint") && !error.contains("secret"), "{error}");
    }
}
