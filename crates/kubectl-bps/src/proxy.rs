//! Whether the API server would be reached through a proxy, which this program cannot do.

use std::net::{IpAddr, Ipv4Addr};

use kube::Config;

use super::Error;

/// Port of a server whose address names none.
const HTTPS_PORT: u16 = 443;

/// What the environment says of proxies.
#[derive(Clone, Debug, Default)]
pub(super) struct ProxyEnvironment {
    /// The proxy of HTTPS connections.
    pub(super) proxy: Option<String>,
    /// Servers that are reached without it, separated by commas.
    pub(super) exempt: Option<String>,
}

impl ProxyEnvironment {
    /// Reads it, as kube and kubectl do.
    pub(super) fn read() -> Self {
        let first = |names: [&str; 2]| {
            names.into_iter().filter_map(|name| std::env::var(name).ok()).find(|value| !value.is_empty())
        };
        Self { proxy: first(["HTTPS_PROXY", "https_proxy"]), exempt: first(["NO_PROXY", "no_proxy"]) }
    }
}

/// The configuration without a proxy, if the environment named it and exempts the API server from it: without its feature
/// for proxies, kube reads `HTTPS_PROXY` but not `NO_PROXY`.
///
/// # Errors
/// `Proxy` if one is left.
pub(super) fn without_proxy(mut config: Config, environment: &ProxyEnvironment) -> Result<Config, Error> {
    let Some(proxy) = &config.proxy_url else { return Ok(config) };
    let server = config.cluster_url.host().unwrap_or_default();
    let of_environment = environment.proxy.as_ref().and_then(|proxy| proxy.parse().ok());
    // A proxy-url of the kubeconfig counts whatever NO_PROXY says.
    let port = config.cluster_url.port_u16().unwrap_or(HTTPS_PORT);
    if of_environment.as_ref() == Some(proxy) && is_exempt((server, port), environment.exempt.as_deref()) {
        config.proxy_url = None;
        return Ok(config);
    }
    let proxy = proxy.host().unwrap_or_default().to_owned();
    Err(Error::Proxy { server: server.to_owned(), proxy })
}

/// Whether a server is reached without a proxy. The own machine always is.
fn is_exempt((host, port): (&str, u16), exempt: Option<&str>) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    let is_own = host == "localhost" || address.is_some_and(|address| address.is_loopback());
    let is_named = |entry: &str| {
        let entry = entry.trim().to_ascii_lowercase();
        // An address of IPv6 has more than one colon, and no port without brackets.
        let (entry, own_port) = match entry.rsplit_once(':') {
            Some((name, own_port)) if !name.contains(':') || name.ends_with(']') => (name, Some(own_port)),
            Some(_) | None => (entry.as_str(), None),
        };
        if own_port.is_some_and(|own_port| own_port.parse() != Ok(port)) {
            return false;
        }
        let entry = entry.trim_start_matches('[').trim_end_matches(']');
        let domain = entry.trim_start_matches('.');
        let is_below = || host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
        match (entry.split_once('/'), address) {
            (Some(network), Some(IpAddr::V4(address))) => is_within(address, network),
            (Some(_), _) => false,
            (None, _) => entry == "*" || (!domain.is_empty() && (host == domain || is_below())),
        }
    };
    is_own || exempt.unwrap_or_default().split(',').any(is_named)
}

/// Whether an address is in a network, written as its first address and the number of bits that all of it share.
fn is_within(address: Ipv4Addr, (network, bits): (&str, &str)) -> bool {
    let (Ok(network), Ok(bits @ 0..=32)) = (network.parse::<Ipv4Addr>(), bits.parse::<u32>()) else {
        return false;
    };
    let mask = u32::MAX.checked_shl(32 - bits).unwrap_or_default();
    address.to_bits() & mask == network.to_bits() & mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_exempt_by_name_domain_address_or_network() {
        let table = [
            ("api.example.com", "api.example.com", true),
            ("API.example.com", "other, api.EXAMPLE.com", true),
            ("api.example.com", "example.com", true),
            ("api.example.com", ".example.com", true),
            ("api.example.com", "*", true),
            ("api.example.com", "api.example.com:6443", true),
            ("api.example.com", "api.example.com:443", false),
            ("api.example.com", ".example.com:6443", true),
            ("api.example.com", "api.example.com:https", false),
            ("[fd00::1]", "[fd00::1]:6443", true),
            ("[fd00::1]", "[fd00::1]:443", false),
            ("api.example.com", "ample.com", false),
            ("api.example.com", "api.example.com.org", false),
            ("api.example.com", ",,.", false),
            ("api.example.com", "", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.0.0.0/8", true),
            ("10.1.2.3", "10.1.2.0/31", false),
            ("10.1.2.3", "0.0.0.0/0", true),
            ("10.1.2.3", "10.1.2.3/33", false),
            ("api.example.com", "10.0.0.0/8", false),
            ("[fd00::1]", "fd00::1", true),
            ("127.0.0.1", "", true),
            ("[::1]", "", true),
            ("localhost", "", true),
        ];
        for (host, exempt, expected) in table {
            assert_eq!(is_exempt((host, 6_443), Some(exempt)), expected, "{host} {exempt}");
        }
        assert!(!is_exempt(("10.1.2.3", 6_443), None));
    }

    #[test]
    fn only_the_proxy_of_the_environment_gives_way_and_another_one_is_named_with_what_to_do() {
        let with = |proxy: Option<&str>, exempt: &str| {
            let mut config = Config::new("https://10.1.2.3:6443".parse().unwrap());
            config.proxy_url = proxy.map(|proxy| proxy.parse().unwrap());
            let of_environment = Some("http://somebody:secret@proxy:3128".to_owned());
            let environment = ProxyEnvironment { proxy: of_environment, exempt: Some(exempt.to_owned()) };
            without_proxy(config, &environment).map(|config| config.proxy_url).map_err(|error| error.chain())
        };
        assert_eq!(with(None, ""), Ok(None));
        assert_eq!(with(Some("http://somebody:secret@proxy:3128"), "10.0.0.0/8"), Ok(None));
        let refused = |proxy: &str| {
            Err(format!(
                "the API server 10.1.2.3 would be reached through the proxy {proxy}, and this program supports no proxies: \
                 name the server in NO_PROXY, or use a context without proxy-url"
            ))
        };
        assert_eq!(with(Some("http://somebody:secret@proxy:3128"), "10.2.0.0/16"), refused("proxy"));
        assert_eq!(with(Some("http://other:3128"), "*"), refused("other"));
    }
}
