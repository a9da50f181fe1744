//! Orders about identity providers.

use super::{ChangeError, LIST_MAX, Outcome, RECORDS_OF_ACCOUNT_MAX};
use crate::registry::{Change, Kind, Provider, Record, Registry, provider_name};

/// Maximum size of a URL and of a client id, in bytes.
const URL_BYTES_MAX: usize = 255;
const CLIENT_BYTES_MAX: usize = 255;
const THUMBPRINT_BYTES: usize = 40;

fn check_url(url: &str) -> Result<(), ChangeError> {
    let name = provider_name(url);
    let scheme = url.starts_with("https://") || url.starts_with("http://");
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/:".contains(&byte);
    if scheme && url.len() <= URL_BYTES_MAX && !name.is_empty() && !name.starts_with('/') && name.bytes().all(plain) {
        return Ok(());
    }
    Err(ChangeError::Value(format!("the URL of an identity provider begins with https:// and has no query: {url:?}")))
}

fn check_clients(clients: &[String]) -> Result<(), ChangeError> {
    if clients.len() > LIST_MAX {
        return Err(ChangeError::Limit(format!("an identity provider has {LIST_MAX} client ids at most")));
    }
    let fits = |client: &String| (1..=CLIENT_BYTES_MAX).contains(&client.len());
    match clients.iter().all(fits) {
        true => Ok(()),
        false => Err(ChangeError::Value(format!("a client id has 1 to {CLIENT_BYTES_MAX} bytes"))),
    }
}

fn check_thumbprints(thumbprints: &[String]) -> Result<(), ChangeError> {
    if thumbprints.len() > LIST_MAX {
        return Err(ChangeError::Limit(format!("an identity provider has {LIST_MAX} thumbprints at most")));
    }
    // AWS checks the length but not that the digits are hexadecimal.
    let fits = |text: &String| text.len() == THUMBPRINT_BYTES && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match thumbprints.iter().all(fits) {
        true => Ok(()),
        false => Err(ChangeError::Value(format!("a thumbprint has {THUMBPRINT_BYTES} characters"))),
    }
}

impl Registry {
    pub(super) fn create_provider(
        &self,
        account: String,
        url: String,
        clients: Vec<String>,
        thumbprints: Vec<String>,
        now: i64,
    ) -> Outcome {
        check_url(&url)?;
        check_clients(&clients)?;
        check_thumbprints(&thumbprints)?;
        self.check_account_is_there(&account)?;
        let id = format!("{account}/{}", provider_name(&url));
        if self.providers.contains_key(&id) {
            return Err(ChangeError::Present("identity provider", url));
        }
        if self.providers.values().filter(|provider| provider.account == account).count() >= RECORDS_OF_ACCOUNT_MAX {
            let message = format!("the account has {RECORDS_OF_ACCOUNT_MAX} identity providers, the most it may have");
            return Err(ChangeError::Limit(message));
        }
        let provider = Provider { id, account, url, clients, thumbprints, created: now };
        Ok(vec![Change::Put(Record::Provider(provider))])
    }

    fn provider(&self, id: &str) -> Result<&Provider, ChangeError> {
        let name = id.split_once('/').map_or(id, |(_, name)| name);
        self.providers.get(id).ok_or_else(|| ChangeError::Absent("identity provider", name.to_owned()))
    }

    pub(super) fn update_provider(
        &self,
        id: &str,
        add_client: Option<String>,
        remove_client: Option<&str>,
        thumbprints: Option<Vec<String>>,
    ) -> Outcome {
        let mut provider = self.provider(id)?.clone();
        if let Some(client) = add_client.filter(|client| !provider.clients.contains(client)) {
            provider.clients.push(client);
            check_clients(&provider.clients)?;
        }
        provider.clients.retain(|own| Some(own.as_str()) != remove_client);
        if let Some(thumbprints) = thumbprints {
            check_thumbprints(&thumbprints)?;
            provider.thumbprints = thumbprints;
        }
        Ok(vec![Change::Put(Record::Provider(provider))])
    }

    pub(super) fn delete_provider(&self, id: String) -> Outcome {
        self.provider(&id)?;
        Ok(vec![Change::Remove(Kind::Provider, id)])
    }
}
